// Programs of the simulator: the recorded schedules of all ranks, made small.
//
// A ring of 4,096 ranks has 33 million steps, but every rank does the same, seen from itself. So
// ranks are recorded one after the other, peers and chunks are written relative to the rank, and
// ranks whose steps are then equal share one program. Only the links are kept for each rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "algos/registry.hpp"
#include "algos/schedule.hpp"
#include "core/host_map.hpp"
#include "core/status.hpp"
#include "sim/fabric.hpp"

namespace treering::sim {

// What is to be run.
struct Workload {
  std::string name;  // "all_reduce ring"
  int ranks = 0;
  std::function<algos::Schedule(int rank)> record;
  std::vector<std::uint64_t> chunk_bytes;  // of each chunk that steps name
  std::uint64_t slice_bytes = 0;           // the most that a message carries; 0: a chunk
  // Slices of a chunk in one round; rounds follow each other (engine/plan.hpp). 0: all in one.
  std::uint32_t slices_per_round = 1;
  // Messages that a link holds before its writer waits for its reader; 0: any number.
  std::uint32_t slots = 0;
  // Ranks whose steps move as many bytes share a program, whichever chunks these are; the numbers
  // of chunks are then one such rank's. For algorithms in which chunks do not turn with the rank.
  bool share_by_size = false;
  // Chunks that follow each other to or from one peer are one message: as MPI libraries send them,
  // where Treering sends chunk by chunk.
  bool merge = false;
};

// Messages that so many bytes make; none for no bytes.
constexpr std::uint64_t slices_in(std::uint64_t bytes, std::uint64_t slice_bytes) {
  if (slice_bytes == 0) return bytes != 0;
  return bytes / slice_bytes + (bytes % slice_bytes != 0);
}

// The engine's cut of a vector of `bytes` (of one part's `bytes` * size where the caller cuts).
std::vector<std::uint64_t> cut_chunks(Collective collective, int chunks, std::uint64_t bytes);
// hosts: which ranks share a machine; nullptr: nothing is known.
Workload workload_of(const algos::Algorithm& algorithm, int size, std::uint64_t bytes, int root = 0,
                     std::shared_ptr<const HostMap> hosts = nullptr);

// Two all-reduces that are not the library's, but have the shape of NCCL's between machines, to
// compare with what is published of it. Both use `channels` copies of themselves, each of which
// enters a machine at another rank, so that all NICs are used.
//   rail_ring   one ring over all ranks, machine by machine
//   chain_tree  a double binary tree over machines, and a chain inside of each
Result<Workload> machine_workload(const std::string& name, const HostMap& hosts, int channels,
                                  std::uint64_t bytes);
inline constexpr const char* kMachineAlgorithms[] = {"rail_ring", "chain_tree"};

enum class Use : std::uint8_t { kLink, kRead, kWrite };  // a message, or a window read or written

// A step in a shared program. Operands lie in Program::operands: inputs, then outputs.
struct ProgramStep {
  algos::Verb verb = algos::Verb::kCopy;
  bool relative = false;   // first_chunk is counted from the rank
  bool token = false;      // carries where buffers are, not a chunk
  bool writes = false;     // stores into a buffer of its own
  bool cast = false;       // its outputs are one cast link
  std::int16_t folds = 0;  // inputs beyond the first
  std::int32_t lane = 0;
  std::int32_t first_chunk = 0, chunks = 1;
  std::int32_t first_operand = 0, inputs = 0, outputs = 0;
  // The last step of the program that uses a link of this step.
  std::int32_t gate = -1;
};

struct ProgramOperand {
  Use use = Use::kLink;
  bool peek = false;
  std::int32_t link = 0;  // of the rank's table of links (kLink), or its peers' routes
};

struct Program {
  std::vector<ProgramStep> steps;  // lane by lane
  std::vector<ProgramOperand> operands;
  std::vector<std::int32_t> lane_begin;  // of steps; one more than lanes
  int lanes() const { return static_cast<int>(lane_begin.size()) - 1; }
};

struct LinkKey {
  std::int32_t src = 0, dst = 0;
  std::int32_t kind = 0;  // channel; casts and windows have numbers of their own
  bool operator==(const LinkKey&) const = default;
};

struct Programs {
  std::vector<Program> programs;
  std::vector<std::int32_t> of_rank;                  // which program
  std::vector<std::vector<std::int32_t>> rank_links;  // global links, as the program counts
  std::vector<LinkKey> links;
  std::uint64_t steps = 0;  // of all ranks together
};

// Refuses more links than fit into memory, and schedules whose peers do not exist.
inline constexpr std::size_t kMaxLinks = 2'000'000;
Result<Programs> compile(const Workload& workload);

}  // namespace treering::sim
