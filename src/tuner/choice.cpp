#include "tuner/choice.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace treering {
namespace {

using algos::Algorithm;

// A preference: up to `max_bytes`, use `name` because `why`. Measured on shared memory; the report
// is in perf/results. The first row that fits and is allowed wins.
struct Rule {
  std::uint64_t max_bytes;
  int max_size;
  const char* name;
  const char* why;
};
constexpr std::uint64_t kAny = ~0ull;
constexpr int kAnySize = 1 << 30;

constexpr Rule kAllReduce[] = {
    {kAny, kAnySize, "window", "all buffers are registered: no copies through slots"},
    {16 << 10, 8, "one_shot", "small: one step of latency, everyone folds everything"},
    {4 << 10, 32, "one_shot", "small: one step of latency, everyone folds everything"},
    {kAny, 64, "two_shot", "large: each rank folds its part once and shows it to all"},
    {64 << 10, kAnySize, "recursive_doubling", "small, many ranks: log2 n steps"},
    {kAny, kAnySize, "ring", "large, many ranks: two neighbours each, fewest links"},
    {kAny, kAnySize, "two_shot", "keeps the order of the ranks"},
    {kAny, kAnySize, "one_shot", "keeps the order of the ranks"},
};
constexpr Rule kReduce[] = {
    {kAny, 16, "direct", "one step: the root folds all inputs"},
    {kAny, kAnySize, "tree", "many ranks: the root would be a bottleneck"},
    {kAny, kAnySize, "direct", "keeps the order of the ranks"},
};
constexpr Rule kBroadcast[] = {
    {kAny, kAnySize, "direct", "one-to-many link: written once, read by all"},
};
constexpr Rule kAllGather[] = {
    {kAny, kAnySize, "window", "all buffers are registered: no copies through slots"},
    {kAny, 64, "direct", "one-to-many links: written once, read by all"},
    {4 << 10, kAnySize, "bruck", "small parts, many ranks: log2 n steps"},
    {kAny, kAnySize, "ring", "many ranks: two neighbours each, fewest links"},
};
constexpr Rule kReduceScatter[] = {
    {kAny, kAnySize, "window", "all buffers are registered: no copies through slots"},
    {kAny, 64, "direct", "each rank folds its part from all inputs at once"},
    {kAny, kAnySize, "ring", "many ranks: two neighbours each, fewest links"},
    {kAny, kAnySize, "direct", "keeps the order of the ranks"},
};
constexpr Rule kGather[] = {
    {kAny, 32, "direct", "one step: the root reads every rank's link"},
    {4 << 10, kAnySize, "binomial", "small parts, many ranks: log2 n steps"},
    {kAny, kAnySize, "direct", "one step: the root reads every rank's link"},
};
constexpr Rule kScatter[] = {
    {kAny, 32, "direct", "one step: the root writes every rank's link"},
    {4 << 10, kAnySize, "binomial", "small parts, many ranks: log2 n steps"},
    {kAny, kAnySize, "direct", "one step: the root writes every rank's link"},
};
constexpr Rule kAllToAll[] = {
    {256, kAnySize, "bruck", "tiny parts, many ranks: log2 n steps"},
    {kAny, kAnySize, "pairwise", "every pair exchanges directly, all at once"},
};
constexpr Rule kBarrier[] = {
    {kAny, kAnySize, "dissemination", "log2 n steps of one byte"},
};
constexpr Rule kScan[] = {
    {64 << 10, 8, "direct", "small: one step, each rank folds all lower ones"},
    {kAny, kAnySize, "chain", "a pipelined chain in rank order"},
    {kAny, kAnySize, "direct", "one step, each rank folds all lower ones"},
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

// Why `algorithm` may not serve this call; nullptr if it may.
const char* objection(const Algorithm& algorithm, const ChoiceInput& in) {
  if (!algorithm.supports(in.size)) return "it does not support this number of ranks";
  if (!in.commutative && !algorithm.keeps_order) return "the operator does not commute";
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

// Slots of one size as far as possible: a change makes the writer wait until its link is drained.
std::size_t slice_bytes_for(std::uint64_t message_bytes, const ChoiceInput& in) {
  const std::size_t most = std::min(in.link_bytes, in.cast_bytes) / 2 / 64 * 64;
  if (in.forced_slice_bytes != 0) return std::min(in.forced_slice_bytes, most);
  const std::size_t slot = !in.uneven && message_bytes <= 8 << 10 ? 8 << 10 : 64 << 10;
  return std::min(slot, most);
}

Choice finish(const Algorithm& algorithm, const char* why, const ChoiceInput& in) {
  Choice c;
  c.algorithm = &algorithm;
  c.why = why;
  const bool cut_here = in.collective == Collective::kAllReduce ||
                        in.collective == Collective::kReduce ||
                        in.collective == Collective::kBroadcast ||
                        in.collective == Collective::kScan || in.collective == Collective::kExscan;
  const std::uint64_t chunks = cut_here ? static_cast<std::uint64_t>(algorithm.chunks(in.size)) : 1;
  c.slice_bytes = algorithm.windows ? std::size_t{1} << 62
                                    : slice_bytes_for((in.bytes + chunks - 1) / chunks, in);
  c.stream_slots = in.uneven || in.bytes >= 8 << 10;
  // A receive buffer that caches will not hold anyway gains by streaming stores: no line is read
  // only to be overwritten. In place, what is overwritten has just been read (but for all-gather,
  // which reads one part of it). Measured with 2 and 4 ranks on 2 MiB of L2 each: from 8 MiB on 1.1
  // to 1.5 times faster, but in place 0.75 to 0.95.
  const bool just_read = in.in_place && in.collective != Collective::kAllGather;
  c.stream_out = !in.uneven && !just_read &&
                 in.bytes * static_cast<std::uint64_t>(in.size) >= std::uint64_t{8} << 20;
  return c;
}

}  // namespace

Result<Choice> choose(const ChoiceInput& in) {
  if (in.size == 1) {
    const Algorithm* local = algos::find_algorithm(in.collective, "local");
    if (local == nullptr) return internal_error("no local algorithm");
    return finish(*local, "one rank: a copy", in);
  }
  if (in.forced != nullptr) {
    const Algorithm* a = algos::find_algorithm(in.collective, in.forced);
    if (a == nullptr) {
      return invalid_argument(std::string("there is no ") + collective_name(in.collective) +
                              " algorithm \"" + in.forced +
                              "\"; there are: " + algos::algorithm_names(in.collective, in.size));
    }
    if (const char* why = objection(*a, in)) {
      return invalid_argument(std::string(collective_name(in.collective)) + " algorithm \"" +
                              in.forced + "\" was forced but cannot serve this call: " + why);
    }
    return finish(*a, "forced by the caller", in);
  }
  for (const Rule& rule : rules(in.collective)) {
    if (in.bytes > rule.max_bytes || in.size > rule.max_size) continue;
    const Algorithm* a = algos::find_algorithm(in.collective, rule.name);
    if (a != nullptr && objection(*a, in) == nullptr) return finish(*a, rule.why, in);
  }
  return unsupported(
      std::string("no ") + collective_name(in.collective) +
      " algorithm fits this call: " + (in.commutative ? "" : "the operator does not commute; ") +
      (in.ordered ? "TR_OPT_ORDERED is set; " : "") + (in.in_place ? "in place; " : "") +
      std::to_string(in.size) + " ranks");
}

std::string explain_choices(ChoiceInput in) {
  std::string text;
  const char* shown = nullptr;
  for (std::uint64_t bytes = 8; bytes <= std::uint64_t{1} << 30; bytes *= 2) {
    in.bytes = bytes;
    Result<Choice> c = choose(in);
    if (!c.ok()) return "  " + c.status().message() + "\n";
    if (c.value().algorithm->name == shown) continue;
    shown = c.value().algorithm->name;
    text += "  from " + std::to_string(bytes) + " bytes: " + shown + " (" + c.value().why + ")\n";
  }
  return text;
}

}  // namespace treering
