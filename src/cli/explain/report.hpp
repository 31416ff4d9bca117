// What `treering explain` is asked, and everything it found out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "algos/program.hpp"
#include "algos/registry.hpp"
#include "algos/schedule.hpp"
#include "cli/explain/playback.hpp"
#include "cli/explain/volume.hpp"
#include "core/host_map.hpp"
#include "core/status.hpp"

namespace treering::explain {

// The command line, as given.
struct Request {
  std::string op;
  std::string algorithm;  // empty: list them
  int ranks = 4;
  std::string hosts;  // HostMap::parse; then it says how many ranks; empty: one host
  std::uint64_t bytes = 1 << 20;
  std::uint64_t slice_bytes = 0;  // 0: a message carries a whole chunk
  int root = 0;
  std::string type = "float32";
  std::optional<int> rank;  // show this one only
  bool json = false;
  std::string html;  // file to write; empty: none
};

struct Report {
  const algos::Algorithm* algorithm = nullptr;
  int ranks = 0;
  std::optional<HostMap> hosts;  // if there are several
  int root = 0;
  Type type = Type::kFloat32;
  algos::Program program;
  Playback playback;
  Cut cut;
  Volume volume;
  // With more than one slice per chunk: the time in units of a slice's message; absent if too long
  // to play.
  std::optional<std::int64_t> pipelined;
  // The checker's proof: the fewest slots per link, with one slice per chunk, that cannot deadlock.
  // Absent if there are too many ranks to check while a user waits.
  std::optional<int> proven_slots;

  const std::vector<algos::Schedule>& schedules() const { return program.ranks; }
  const HostMap* host_map() const { return hosts ? &*hosts : nullptr; }
};

Result<Collective> parse_collective(const std::string& name);
Status check_ranks(int ranks);
bool has_root(Collective collective);
// Of request.hosts; none if that is empty or one host. Sets request.ranks to the ranks of all hosts
// unless -n was given, and then they must be equal.
Result<std::optional<HostMap>> parse_hosts(Request& request, bool ranks_given);

// kInvalidArgument: the text lists the choices.
Result<Report> make_report(const Request& request, std::optional<HostMap> hosts = std::nullopt);

// The algorithms of one collective, or of all; ranks > 0: only those that run over so many, on
// these hosts (nullptr: one).
std::string list_algorithms(std::optional<Collective> collective, int ranks, const HostMap* hosts);
// For a terminal; `rank`: only this one's steps.
std::string to_text(const Report& report, std::optional<int> rank);
std::string to_json(const Report& report);
// A page that plays the schedule; nothing but the one file is needed. kUnsupported above
// kMaxPageRanks.
inline constexpr int kMaxPageRanks = 16;
Result<std::string> to_html(const Report& report);

}  // namespace treering::explain
