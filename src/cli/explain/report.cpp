#include "cli/explain/report.hpp"

#include "algos/checker.hpp"

namespace treering::explain {
namespace {

// A ring of 512 ranks has half a million steps: playing it takes about a second.
constexpr int kMaxRanks = 512;
constexpr std::int64_t kMaxPlayedSteps = 20'000'000;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 50;  // sums over ranks stay below 2^64
constexpr int kMaxProvenRanks = 64;

bool exists(Collective collective) { return !algos::algorithm_names(collective, 2).empty(); }

std::string collective_names() {
  std::string names;
  for (int i = 0; i < kNumCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (!exists(collective)) continue;
    names += (names.empty() ? "" : ", ") + std::string(collective_name(collective));
  }
  return names;
}

Result<Type> parse_type(const std::string& name) {
  std::string names;
  for (int i = 0; i < kNumTypes; ++i) {
    const auto type = static_cast<Type>(i);
    if (name == type_name(type)) return type;
    names += (names.empty() ? "" : ", ") + std::string(type_name(type));
  }
  return invalid_argument("there is no type '" + name + "'; choose one of: " + names);
}

Status check_bytes(std::uint64_t bytes, Type type) {
  const std::uint64_t elem = type_bytes(type);
  if (bytes > 0 && bytes % elem == 0 && bytes <= kMaxBytes) return {};
  return invalid_argument("--bytes " + std::to_string(bytes) + ": choose a multiple of the " +
                          std::to_string(elem) + (elem == 1 ? " byte" : " bytes") + " of a " +
                          type_name(type) + ", from " + std::to_string(elem) + " to 2^50");
}

Status check_places(const Request& request, Collective collective) {
  const int n = request.ranks;
  if (request.rank && (*request.rank < 0 || *request.rank >= n)) {
    return invalid_argument("--rank " + std::to_string(*request.rank) + ": with " +
                            std::to_string(n) + " ranks choose 0 to " + std::to_string(n - 1));
  }
  if (request.root != 0 && !has_root(collective)) {
    return invalid_argument(std::string(collective_name(collective)) +
                            " has no root: leave --root out");
  }
  if (request.root < 0 || request.root >= n) {
    return invalid_argument("--root " + std::to_string(request.root) + ": with " +
                            std::to_string(n) + " ranks choose 0 to " + std::to_string(n - 1));
  }
  return {};
}

Result<const algos::Algorithm*> choose(const Request& request, Collective collective,
                                       const HostMap* hosts) {
  const std::string op = collective_name(collective);
  const algos::Algorithm* algorithm = algos::find_algorithm(collective, request.algorithm);
  const std::string names = algos::algorithm_names(collective, request.ranks, nullptr, hosts);
  const std::string n = std::to_string(request.ranks) + (request.ranks == 1 ? " rank" : " ranks");
  if (algorithm == nullptr) {
    return invalid_argument(op + " has no algorithm '" + request.algorithm + "'; for " + n +
                            " choose one of: " + names);
  }
  if (const char* why = algos::why_unsupported(*algorithm, request.ranks, hosts)) {
    const char* advice =
        algorithm->needs_hosts() ? "; say which share one, such as --hosts 2x2, or" : ";";
    return invalid_argument(op + " by '" + request.algorithm + "' does not work with " + n + ": " +
                            why + advice + " choose one of: " + names);
  }
  return algorithm;
}

// Out of place, and in place where the algorithm allows that.
Result<int> prove(const Report& report) {
  TR_ASSIGN_OR_RETURN(const algos::Network network, algos::Network::build(report.program));
  TR_ASSIGN_OR_RETURN(const int slots, algos::minimum_slots(network, 1));
  TR_RETURN_IF_ERROR(algos::check(report.program, 1, slots));
  if (report.algorithm->in_place) {
    TR_RETURN_IF_ERROR(algos::check(
        algos::make_program(*report.algorithm, report.ranks, report.root, true, report.host_map()),
        1, slots));
  }
  return slots;
}

}  // namespace

Result<Collective> parse_collective(const std::string& name) {
  for (int i = 0; i < kNumCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (name == collective_name(collective) && exists(collective)) {
      return collective;
    }
  }
  return invalid_argument(
      (name.empty() ? "which operation?" : "there is no operation '" + name + "';") +
      std::string(" choose one of: ") + collective_names());
}

Status check_ranks(int ranks) {
  if (ranks >= 1 && ranks <= kMaxRanks) return {};
  return invalid_argument("-n " + std::to_string(ranks) + ": choose 1 to " +
                          std::to_string(kMaxRanks) + " ranks");
}

bool has_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

Result<std::optional<HostMap>> parse_hosts(Request& request, bool ranks_given) {
  if (request.hosts.empty()) return std::optional<HostMap>();
  Result<HostMap> hosts = HostMap::parse(request.hosts);
  if (!hosts.ok()) return hosts.status();
  if (ranks_given && request.ranks != hosts.value().ranks()) {
    return invalid_argument("--hosts " + request.hosts + " has " +
                            std::to_string(hosts.value().ranks()) + " ranks, not the " +
                            std::to_string(request.ranks) + " of -n; leave -n out");
  }
  request.ranks = hosts.value().ranks();
  if (hosts.value().hosts() == 1) return std::optional<HostMap>();
  return std::optional<HostMap>(std::move(hosts).value());
}

Result<Report> make_report(const Request& request, std::optional<HostMap> hosts) {
  TR_ASSIGN_OR_RETURN(const Collective collective, parse_collective(request.op));
  TR_RETURN_IF_ERROR(check_ranks(request.ranks));
  TR_RETURN_IF_ERROR(check_places(request, collective));
  Report report;
  report.hosts = std::move(hosts);
  TR_ASSIGN_OR_RETURN(report.algorithm, choose(request, collective, report.host_map()));
  TR_ASSIGN_OR_RETURN(report.type, parse_type(request.type));
  TR_RETURN_IF_ERROR(check_bytes(request.bytes, report.type));
  report.ranks = request.ranks;
  report.root = request.root;
  report.program =
      algos::make_program(*report.algorithm, request.ranks, request.root, false, report.host_map());
  TR_ASSIGN_OR_RETURN(report.playback, play(report.program));
  report.cut = cut_vector(*report.algorithm, request.ranks, request.bytes, report.type,
                          request.slice_bytes, report.host_map());
  report.volume = measure(report.schedules(), report.cut);
  const auto slices = static_cast<std::int64_t>(report.cut.most_slices());
  std::int64_t steps = 1;
  for (const algos::Schedule& s : report.schedules()) steps += std::ssize(s.steps);
  if (slices > 1 && slices <= kMaxPlayedSteps / steps) {
    TR_ASSIGN_OR_RETURN(report.pipelined, pipelined_time(report.program, slices));
  }
  if (request.ranks <= kMaxProvenRanks) {
    TR_ASSIGN_OR_RETURN(report.proven_slots, prove(report));
  }
  return report;
}

}  // namespace treering::explain
