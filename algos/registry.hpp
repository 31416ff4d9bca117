// The list of all algorithms: what each is called, when it may be used, and its recorder.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "algos/schedule.hpp"
#include "algos/trace_prims.hpp"
#include "core/host_map.hpp"
#include "core/status.hpp"
#include "core/types.hpp"

namespace treering::algos {

struct Algorithm {
  const char* name;       // "ring"
  Collective collective;  // what it computes
  void (*trace)(TracePrims&);
  // Into how many chunks the vector is cut (n for all_gather and its like, where the caller cuts
  // it).
  int (*chunks)(int size);
  bool (*supports)(int size);
  bool keeps_order;     // folds in rank order: fit for operators that do not commute
  bool order_is_fixed;  // folds all inputs at one place in rank order: TR_OPT_ORDERED
  bool in_place;        // send and receive buffer may be the same
  bool windows;         // needs registered memory on all ranks
  // Uses one-to-many links, which reach the ranks of one host only.
  bool casts;
  // The caller's chunks may differ in size, and who knows a chunk's size is who sends or receives
  // it (v-variants).
  bool uneven;
  const char* source;   // the paper or book
  const char* formula;  // bytes a rank sends and steps, in words: "2(n-1)/n S, 2(n-1) steps"
  // Algorithms that know which ranks share a host: as `chunks`. nullptr: all others. Those that
  // know are for two hosts and more; `supports` is false for every size, and keeps_order holds
  // where each host's ranks are consecutive.
  int (*chunks_on)(const Hosts&) = nullptr;
  // How many rings may share a link (two_level.hpp); nullptr: one.
  int (*rings_a_link)(const Hosts&) = nullptr;
  bool needs_hosts() const { return chunks_on != nullptr; }
};

std::span<const Algorithm> all_algorithms();
// nullptr if there is none of that name for the collective.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

// In all of the following, hosts says which ranks share a host; nullptr: all do.
bool supports(const Algorithm& algorithm, int size, const HostMap* hosts = nullptr);
// Why not, in words: "it ..."; nullptr if it is supported.
const char* why_unsupported(const Algorithm& algorithm, int size, const HostMap* hosts = nullptr);
bool keeps_order(const Algorithm& algorithm, const HostMap* hosts = nullptr);
// Of what is supported.
int chunk_count(const Algorithm& algorithm, int size, const HostMap* hosts = nullptr);
// So many slots a link are enough, for so many slices a chunk; the checker's least is no more.
int enough_slots(const Algorithm& algorithm, int slices, const HostMap* hosts = nullptr);
// "ring, tree, two_shot": those that support `size` ranks, and that exist in the sense of `exists`.
std::string algorithm_names(Collective collective, int size,
                            const std::function<bool(const char* name)>& exists = nullptr,
                            const HostMap* hosts = nullptr);

// The schedule of one rank. root is ignored by collectives that have none. size must be supported.
Schedule record(const Algorithm& algorithm, int rank, int size, int root = 0,
                const HostMap* hosts = nullptr);

}  // namespace treering::algos
