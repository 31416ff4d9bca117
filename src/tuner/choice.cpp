#include "tuner/choice.hpp"

#include <algorithm>

#include "tuner/rules.hpp"
#include "tuner/tuning.hpp"

namespace treering {
namespace {

// Slots of one size as far as possible: a change makes the writer wait until its link is drained.
std::size_t slice_bytes_for(std::uint64_t message_bytes, std::size_t slots, const ChoiceInput& in) {
  const std::size_t most = std::min(in.link_bytes, in.cast_bytes) / slots / 64 * 64;
  if (in.forced_slice_bytes != 0) return std::min(in.forced_slice_bytes, most);
  const std::size_t slot = !in.uneven && message_bytes <= 8 << 10 ? 8 << 10 : 64 << 10;
  return std::min(slot, most);
}

// A round of a ring between hosts waits for one hop's latency L and sends 2 k slices of time T:
// with k = 1, a link's bandwidth is used for 2 T of L + 2 T only. (Computed for a ring of two
// hosts, not yet measured over a network.) Within a host L is below T.
constexpr std::uint32_t kSlicesBetweenHosts = 3;

// The rules' pick, unless another one was measured to be clearly faster. Where the call is not
// what was measured (a v-variant, registered buffers, several hosts), the rules decide alone.
Pick faster_than(const Pick& rule, const ChoiceInput& in) {
  constexpr double kClearly = 0.95;
  if (in.tuning == nullptr || in.forced != nullptr || in.uneven || rule.algorithm->windows ||
      (in.hosts != nullptr && in.hosts->hosts() > 1)) {
    return rule;
  }
  const auto predicted = in.tuning->predict_us(*rule.algorithm, in.size, in.bytes);
  if (!predicted) return rule;
  Pick best = rule;
  double least = *predicted * kClearly;
  for (const Candidate& c : candidates(in)) {
    if (c.objection != nullptr || !c.predicted_us || *c.predicted_us >= least) continue;
    least = *c.predicted_us;
    best = {c.algorithm, "measured to be the fastest (TR_TUNE_FILE)"};
  }
  return best;
}

}  // namespace

std::vector<Candidate> candidates(const ChoiceInput& in) {
  std::vector<Candidate> all;
  for (const algos::Algorithm& a : algos::all_algorithms()) {
    if (a.collective != in.collective) continue;
    Candidate c{&a, objection(a, in), std::nullopt};
    if (in.tuning != nullptr && !in.uneven) {
      c.predicted_us = in.tuning->predict_us(a, in.size, in.bytes);
    }
    all.push_back(c);
  }
  return all;
}

Result<Choice> choose(const ChoiceInput& in) {
  TR_ASSIGN_OR_RETURN(const Pick rule,
                      pick_algorithm(in, Place::kHost, [](const char*) { return true; }));
  const Pick pick = faster_than(rule, in);
  Choice c;
  c.algorithm = pick.algorithm;
  c.why = pick.why;
  const bool several_hosts = in.hosts != nullptr && in.hosts->hosts() > 1;
  // exscan's chain uses a message twice (peek), which holds for the slice that is first on its
  // link.
  c.slices_per_round =
      several_hosts && in.collective != Collective::kExscan ? kSlicesBetweenHosts : 1;
  const int slots =
      algos::enough_slots(*pick.algorithm, static_cast<int>(c.slices_per_round), in.hosts);
  c.slice_bytes = pick.algorithm->windows ? std::size_t{1} << 62
                                          : slice_bytes_for(chunk_bytes(*pick.algorithm, in),
                                                            static_cast<std::size_t>(slots), in);
  if (c.slice_bytes == 0 && several_hosts) {
    return invalid_argument(std::string(collective_name(in.collective)) + " by " +
                            pick.algorithm->name + " needs " + std::to_string(slots) +
                            " slots of 64 bytes and more a link on these hosts; raise "
                            "TR_LINK_BYTES and TR_CAST_BYTES");
  }
  // What goes to another host is read again at once, by the kernel, and must be in the cache.
  c.stream_slots = !several_hosts && (in.uneven || in.bytes >= 8 << 10);
  // A receive buffer that caches will not hold anyway gains by streaming stores: no line is read
  // only to be overwritten. In place, what is overwritten has just been read (but for all-gather,
  // which reads one part of it). Measured with 2 and 4 ranks on 2 MiB of L2 each: from 8 MiB on 1.1
  // to 1.5 times faster, but in place 0.75 to 0.95.
  const bool just_read = in.in_place && in.collective != Collective::kAllGather;
  c.stream_out = !in.uneven && !just_read &&
                 in.bytes * static_cast<std::uint64_t>(in.size) >= std::uint64_t{8} << 20;
  return c;
}

std::string explain_choices(ChoiceInput in) {
  return explain_sizes([&](std::uint64_t bytes) -> Result<Description> {
    in.bytes = bytes;
    TR_ASSIGN_OR_RETURN(const Choice c, choose(in));
    return Description{c.algorithm->name, c.why};
  });
}

}  // namespace treering
