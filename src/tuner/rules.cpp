#include "tuner/rules.hpp"

#include <span>

namespace treering {
namespace {

using algos::Algorithm;

// A preference: up to `max_bytes`, use `name` because `why`. The first row that fits and is allowed
// wins. Those of the host are measured on shared memory (the report is in perf/results); those of
// the device not yet on a GPU: one step of latency while the vector is short, then every rank folds
// its part from all others' at once, rings where there are too many ranks for that.
struct Rule {
  unsigned places;
  std::uint64_t max_bytes;
  int max_size;
  const char* name;
  const char* why;
};
constexpr auto kHost = static_cast<unsigned>(Place::kHost);
constexpr auto kDevice = static_cast<unsigned>(Place::kDevice);
constexpr unsigned kBoth = kHost | kDevice;
// Host memory of ranks on several hosts. Not yet measured.
constexpr unsigned kHosts = 4;
constexpr unsigned kAnyHost = kHost | kHosts;
constexpr std::uint64_t kAny = ~0ull;
constexpr int kAnySize = 1 << 30;

// What is small goes through links where windows could be used, too: a link carries data and signal
// together, and windows take two signals. (On the host, with 2 and 4 ranks: 8 bytes take 3.2
// and 7.2 us by one_shot, 5.9 and 13.4 by windows; from 32 KiB on windows are the faster ones.)
constexpr Rule kAllReduce[] = {
    {kHost, 8 << 10, 8, "one_shot", "small: one step of latency, everyone folds everything"},
    {kHost, kAny, kAnySize, "window", "all buffers are registered: no copies through slots"},
    {kHost, 16 << 10, 8, "one_shot", "small: one step of latency, everyone folds everything"},
    {kHost, 4 << 10, 32, "one_shot", "small: one step of latency, everyone folds everything"},
    {kHost, kAny, 64, "two_shot", "large: each rank folds its part once and shows it to all"},
    {kHost, 64 << 10, kAnySize, "recursive_doubling", "small, many ranks: log2 n steps"},
    {kHost, kAny, kAnySize, "ring", "large, many ranks: two neighbours each, fewest links"},
    {kHost, kAny, kAnySize, "two_shot", "keeps the order of the ranks"},
    {kHost, kAny, kAnySize, "one_shot", "keeps the order of the ranks"},
    {kHosts, 16 << 10, kAnySize, "two_level_doubling",
     "several hosts, small: one message a host and step between them"},
    {kHosts, kAny, 2, "recursive_doubling", "two ranks: one exchange, with a ring's bytes"},
    {kHosts, 16 << 10, kAnySize, "recursive_doubling", "one rank a host, small: log2 n steps"},
    {kHosts, kAny, kAnySize, "two_level",
     "several hosts, large: folded inside each, rings between them"},
    {kHosts, kAny, kAnySize, "ring", "one rank a host, large: fewest bytes"},
    {kHosts, kAny, kAnySize, "two_level_tree", "keeps the order of the ranks"},
    {kHosts, kAny, kAnySize, "halving_doubling", "keeps the order of the ranks"},
    {kHosts, kAny, kAnySize, "direct", "folds in rank order, at one place"},
    {kDevice, 8 << 10, 8, "one_shot", "small: one step of latency"},
    {kDevice, 64 << 10, 8, "window_one_shot",
     "all buffers are registered; short: each rank folds all inputs where they lie"},
    {kDevice, kAny, kAnySize, "window",
     "all buffers are registered: each rank folds its part where it lies and stores it to all"},
    {kDevice, 16 << 10, 8, "one_shot", "small: one step of latency"},
    {kDevice, kAny, 16, "two_shot", "each rank folds its part once and shows it to all"},
    {kDevice, 256 << 10, kAnySize, "tree", "small, many ranks: log2 n steps"},
    {kDevice, kAny, kAnySize, "ring", "large, many ranks: two neighbours each"},
    {kDevice, kAny, kAnySize, "two_shot", "keeps the order of the ranks"},
};
constexpr Rule kReduce[] = {
    {kBoth, kAny, 16, "direct", "one step: the root folds all inputs"},
    {kBoth, kAny, kAnySize, "tree", "many ranks: the root would be a bottleneck"},
    {kBoth, kAny, kAnySize, "direct", "keeps the order of the ranks"},
    {kHosts, kAny, kAnySize, "two_level", "several hosts: folded inside each first"},
    {kHosts, kAny, kAnySize, "tree", "one rank a host: log2 n steps, pipelined"},
    {kHosts, kAny, kAnySize, "chain", "keeps the order of the ranks"},
    {kHosts, kAny, kAnySize, "direct", "folds in rank order, at one place"},
};
constexpr Rule kBroadcast[] = {
    {kHosts, kAny, kAnySize, "two_level", "several hosts: sent to each once"},
    {kHosts, 16 << 10, kAnySize, "binomial", "one rank a host, small: log2 n steps"},
    {kHosts, kAny, kAnySize, "tree", "one rank a host, large: log2 n steps, pipelined"},
    {kHost, kAny, kAnySize, "direct", "one-to-many link: written once, read by all"},
    {kDevice, kAny, 8, "direct", "one step"},
    {kDevice, kAny, kAnySize, "tree", "many ranks: the root would be a bottleneck"},
};
constexpr Rule kAllGather[] = {
    {kHosts, kAny, kAnySize, "two_level", "several hosts: each part is sent to each once"},
    {kHosts, 4 << 10, kAnySize, "bruck", "one rank a host, small parts: log2 n steps"},
    {kHosts, kAny, kAnySize, "ring", "one rank a host: each to its neighbour"},
    {kBoth, 8 << 10, 8, "direct", "small: one step of latency"},
    {kBoth, kAny, kAnySize, "window", "all buffers are registered: no copies through slots"},
    {kHost, kAny, 64, "direct", "one-to-many links: written once, read by all"},
    {kHost, 4 << 10, kAnySize, "bruck", "small parts, many ranks: log2 n steps"},
    {kHost, kAny, kAnySize, "ring", "many ranks: two neighbours each, fewest links"},
    {kDevice, kAny, 16, "direct", "one step"},
    {kDevice, kAny, kAnySize, "ring", "many ranks: two neighbours each"},
};
constexpr Rule kReduceScatter[] = {
    {kHosts, kAny, kAnySize, "two_level", "several hosts: folded inside each, rings between them"},
    {kHosts, kAny, kAnySize, "ring", "one rank a host: each to its neighbour"},
    {kHosts, kAny, kAnySize, "direct", "keeps the order of the ranks"},
    {kBoth, 8 << 10, 8, "direct", "small: one step of latency"},
    {kBoth, kAny, kAnySize, "window", "all buffers are registered: no copies through slots"},
    {kHost, kAny, 64, "direct", "each rank folds its part from all inputs at once"},
    {kHost, kAny, kAnySize, "ring", "many ranks: two neighbours each, fewest links"},
    {kDevice, kAny, 16, "direct", "each rank folds its part from all inputs at once"},
    {kDevice, kAny, kAnySize, "ring", "many ranks: two neighbours each"},
    {kBoth, kAny, kAnySize, "direct", "keeps the order of the ranks"},
};
constexpr Rule kGather[] = {
    {kAnyHost, kAny, 32, "direct", "one step: the root reads every rank's link"},
    {kAnyHost, 4 << 10, kAnySize, "binomial", "small parts, many ranks: log2 n steps"},
    {kAnyHost, kAny, kAnySize, "direct", "one step: the root reads every rank's link"},
    {kDevice, kAny, kAnySize, "direct", "one step"},
};
constexpr Rule kScatter[] = {
    {kAnyHost, kAny, 32, "direct", "one step: the root writes every rank's link"},
    {kAnyHost, 4 << 10, kAnySize, "binomial", "small parts, many ranks: log2 n steps"},
    {kAnyHost, kAny, kAnySize, "direct", "one step: the root writes every rank's link"},
    {kDevice, kAny, kAnySize, "direct", "one step"},
};
constexpr Rule kAllToAll[] = {
    {kAnyHost, 256, kAnySize, "bruck", "tiny parts, many ranks: log2 n steps"},
    {kBoth | kHosts, kAny, kAnySize, "pairwise", "every pair exchanges directly, all at once"},
};
constexpr Rule kBarrier[] = {
    {kAnyHost, kAny, kAnySize, "dissemination", "log2 n steps of one byte"},
    {kDevice, kAny, kAnySize, "direct", "one step"},
};
constexpr Rule kScan[] = {
    {kAnyHost, 64 << 10, 8, "direct", "small: one step, each rank folds all lower ones"},
    {kAnyHost, kAny, kAnySize, "chain", "a pipelined chain in rank order"},
    {kAnyHost, kAny, kAnySize, "direct", "one step, each rank folds all lower ones"},
    {kDevice, kAny, kAnySize, "direct", "one step"},
};

std::span<const Rule> rules(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return kAllReduce;
    case Collective::kReduce:
      return kReduce;
    case Collective::kBroadcast:
      return kBroadcast;
    case Collective::kAllGather:
      return kAllGather;
    case Collective::kReduceScatter:
      return kReduceScatter;
    case Collective::kGather:
      return kGather;
    case Collective::kScatter:
      return kScatter;
    case Collective::kAllToAll:
      return kAllToAll;
    case Collective::kBarrier:
      return kBarrier;
    case Collective::kScan:
    case Collective::kExscan:
      return kScan;
    case Collective::kSendRecv:
      return {};
  }
  return {};
}

bool on_several_hosts(const ChoiceInput& in) {
  return in.hosts != nullptr && in.hosts->hosts() > 1;
}

}  // namespace

const char* objection(const Algorithm& algorithm, const ChoiceInput& in) {
  if (const char* why = algos::why_unsupported(algorithm, in.size, in.hosts)) return why;
  if (!in.commutative && !algos::keeps_order(algorithm, in.hosts)) {
    return algorithm.keeps_order
               ? "the operator does not commute, and the ranks of a host are not consecutive"
               : "the operator does not commute";
  }
  if (in.ordered && !algorithm.order_is_fixed)
    return "TR_OPT_ORDERED asks for a fold in rank order";
  if (in.in_place && !algorithm.in_place) return "it does not work in place";
  if (in.uneven && !algorithm.uneven) return "it needs the same count on all ranks";
  if (algorithm.windows && !in.windows)
    return "it needs buffers in registered windows on all ranks";
  if (algorithm.windows && in.per_rank_factor)
    return "a pre-multiplied sum scales inputs at their owner";
  return nullptr;
}

Result<Pick> pick_algorithm(const ChoiceInput& in, Place place,
                            const std::function<bool(const char* name)>& exists) {
  const bool host = place == Place::kHost;
  const auto find = [&](const char* name) {
    const Algorithm* a = algos::find_algorithm(in.collective, name);
    return a != nullptr && exists(name) ? a : nullptr;
  };
  if (in.size == 1) {
    const Algorithm* local = find("local");
    if (local == nullptr) return internal_error("no local algorithm");
    return Pick{local, "one rank: a copy"};
  }
  if (in.forced != nullptr) {
    const auto forced = [&] {
      return std::string(collective_name(in.collective)) + " algorithm \"" + in.forced + "\"";
    };
    const Algorithm* a = find(in.forced);
    if (a == nullptr) {
      return invalid_argument(
          (host ? "there is no " + forced()
                : forced() + " was forced, but there is no kernel for it") +
          "; there are: " + algos::algorithm_names(in.collective, in.size, exists, in.hosts));
    }
    if (const char* why = objection(*a, in)) {
      return invalid_argument(forced() + " was forced but cannot serve this call: " + why);
    }
    return Pick{a, "forced by the caller"};
  }
  const std::uint64_t bytes = in.uneven ? kAny : in.bytes;  // no rank knows a v-variant's lengths
  const unsigned where = host && on_several_hosts(in) ? kHosts : static_cast<unsigned>(place);
  for (const Rule& rule : rules(in.collective)) {
    if ((rule.places & where) == 0 || bytes > rule.max_bytes || in.size > rule.max_size) {
      continue;
    }
    const Algorithm* a = find(rule.name);
    if (a == nullptr || objection(*a, in) != nullptr) continue;
    // With one rank a host the flat algorithms are the same, and have these names.
    if (a->needs_hosts() && in.hosts->most_members() == 1) continue;
    return Pick{a, rule.why};
  }
  return unsupported(
      std::string("no ") + collective_name(in.collective) + (host ? " algorithm" : " kernel") +
      " fits this call: " + (in.commutative ? "" : "the operator does not commute; ") +
      (in.ordered ? "TR_OPT_ORDERED is set; " : "") + (in.in_place ? "in place; " : "") +
      std::to_string(in.size) + " ranks");
}

std::uint64_t chunk_bytes(const Algorithm& algorithm, const ChoiceInput& in) {
  const bool cut_here = in.collective == Collective::kAllReduce ||
                        in.collective == Collective::kReduce ||
                        in.collective == Collective::kBroadcast ||
                        in.collective == Collective::kScan || in.collective == Collective::kExscan;
  const std::uint64_t chunks =
      cut_here ? static_cast<std::uint64_t>(algos::chunk_count(algorithm, in.size, in.hosts)) : 1;
  return (in.bytes + chunks - 1) / chunks;
}

std::string explain_sizes(const std::function<Result<Description>(std::uint64_t bytes)>& describe) {
  std::string text, shown;
  for (std::uint64_t bytes = 8; bytes <= std::uint64_t{1} << 30; bytes *= 2) {
    const Result<Description> d = describe(bytes);
    if (!d.ok()) return "  " + d.status().message() + "\n";
    if (d.value().choice == shown) continue;
    shown = d.value().choice;
    text += "  from " + std::to_string(bytes) + " bytes: " + shown + " (" + d.value().why + ")\n";
  }
  return text;
}

}  // namespace treering
