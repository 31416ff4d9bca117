#include "cli/perf/bench.hpp"

#include <algorithm>
#include <limits>
#include <sstream>

namespace treering::perf {
namespace {

constexpr std::uint64_t kMostIters = 1'000'000;
// All are enqueued at once: a full queue would block one rank's launches and with them another's.
constexpr std::uint64_t kMostItersOnGpu = 100;
// Operations longer than this are not warmed up in every batch: their data do not stay in a cache
// anyway.
constexpr double kWarmupLimitUs = 20e3;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void summarise(Timing* timing) {
  timing->measured = true;
  timing->median_us = median(timing->rounds_us);
  const auto [low, high] = std::minmax_element(timing->rounds_us.begin(), timing->rounds_us.end());
  timing->min_us = *low;
  timing->max_us = *high;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) out.push_back(item);
  if (out.empty()) out.emplace_back();  // one setting without a name
  return out;
}

std::string label_of(const std::string& team, const std::string& setting) {
  return setting.empty() ? team : team + ":" + setting;
}

// The peer's time over ours, round by round: what two batches that follow each other have in common
// (the machine's frequency, the distance of the cores that they run on, other programs) cancels.
std::vector<double> paired_ratios(const Timing& ours, const Timing& peer) {
  std::vector<double> ratios;
  const std::size_t rounds = std::min(ours.rounds_us.size(), peer.rounds_us.size());
  for (std::size_t i = 0; i < rounds; ++i) {
    ratios.push_back(peer.rounds_us[i] / ours.rounds_us[i]);
  }
  return ratios;
}

// The middle half of the ratios lies within a few percent: more rounds would not change the median.
bool is_steady(std::vector<double> ratios) {
  constexpr double kSpread = 1.1;
  std::sort(ratios.begin(), ratios.end());
  const std::size_t quarter = ratios.size() / 4;
  return ratios[ratios.size() - 1 - quarter] <= kSpread * ratios[quarter];
}

// Each of our rows against the peer that does best beside it, of all that ran the same case in the
// same mode.
void compare(std::vector<Row>* rows, std::uint32_t mode) {
  for (Row& row : *rows) {
    Timing& timing = row.timing[mode];
    if (!row.ours || !timing.measured) continue;
    for (const Row& peer : *rows) {
      if (peer.ours || !peer.timing[mode].measured) continue;
      const double ratio = median(paired_ratios(timing, peer.timing[mode]));
      if (timing.ratio && *timing.ratio <= ratio) continue;
      timing.ratio = ratio;
      timing.best_peer = peer.label;
    }
  }
}

}  // namespace

std::vector<Case> Bench::cases(tr_type_t type, RedOp redop) const {
  std::vector<Case> out;
  for (const std::uint64_t total : job_.totals) {
    Case what;
    what.op = job_.op;
    what.type = type;
    what.redop = redop;
    what.root = job_.options.root;
    what.count = count_for_bytes(job_.op, type, job_.options.ranks, total);
    if (what.count == 0 && job_.op != Op::kBarrier) continue;  // no room for an element
    // Small totals may round to the same count.
    if (out.empty() || out.back().count != what.count) out.push_back(what);
  }
  return out;
}

Failure Bench::reserve() {
  std::uint64_t most = 0;
  for (const tr_type_t type : job_.types) {
    for (const Case& what : cases(type, job_.redops.front())) {
      most = std::max(most, total_bytes(what, job_.options.ranks));
    }
    for (const RedOp redop : job_.redops) {
      if (!is_defined(job_.op, redop, type)) continue;
      turns_in_all_ += static_cast<int>(cases(type, redop).size() * job_.modes.size());
    }
  }
  Command command;
  command.verb = Verb::kReserve;
  command.arg = std::max<std::uint64_t>(most, 64);
  std::vector<Reply> replies;
  for (std::size_t i = 0; i < teams_.size(); ++i) {
    if (Failure failure = teams_[i].command(command, interrupt_, &replies)) return failure;
  }
  return job_.on_gpu ? measure_copy() : std::nullopt;
}

Failure Bench::measure_copy() {
  Command command;
  command.verb = Verb::kCopy;
  std::vector<Reply> replies;
  if (Failure failure = teams_[0].command(command, interrupt_, &replies)) return failure;
  for (const Reply& reply : replies) copy_gb_s_ += static_cast<double>(reply.number) / 1e9;
  return std::nullopt;
}

// A copy reads and writes each byte.
void Bench::add_ceiling(const Case& what, const Contender& contender) const {
  Timing& timing = *contender.timing;
  timing.traffic =
      memory_traffic(what, job_.options.ranks, contender.ours ? contender.setting : "");
  const double gb_s = static_cast<double>(timing.traffic.bytes) / (timing.median_us * 1e3);
  timing.of_copy = copy_gb_s_ > 0 ? gb_s / (2 * copy_gb_s_) : 0;
}

Failure Bench::find_contenders(const Case& what, std::vector<Contender>* out) {
  for (std::size_t i = 0; i < teams_.size(); ++i) {
    Command command;
    command.verb = Verb::kSettings;
    command.what = what;
    std::vector<Reply> replies;
    if (plans_[i].ours) {
      for (const std::string& setting : plans_[i].settings) {
        Contender contender{i, true, setting, "treering"};
        if (setting != job_.options.algorithm) contender.label = label_of("treering", setting);
        out->push_back(contender);
      }
      continue;
    }
    std::string refusal;
    if (Failure failure = teams_[i].query(command, interrupt_, &replies, &refusal)) return failure;
    if (!refusal.empty()) {
      note(teams_[i].name() + ": " + refusal);
      continue;
    }
    const std::vector<std::string> offered = split(replies.front().text);
    std::vector<std::string> wanted = plans_[i].settings;
    if (wanted.empty()) wanted = offered;
    for (const std::string& setting : wanted) {
      if (std::find(offered.begin(), offered.end(), setting) == offered.end()) {
        note(label_of(teams_[i].name(), setting) + " does not exist for " + op_name(what.op) +
             "; there are: " + replies.front().text);
        continue;
      }
      out->push_back({i, false, setting, label_of(teams_[i].name(), setting)});
    }
  }
  return std::nullopt;
}

Failure Bench::measure(const Case& what, std::vector<Row>* rows) {
  for (const std::uint32_t mode : job_.modes) {
    Case in_mode = what;
    in_mode.in_place = mode;
    std::vector<Contender> contenders;
    if (Failure failure = find_contenders(in_mode, &contenders)) return failure;
    ++turns_;
    // Room first: timings are written through pointers.
    rows->reserve(rows->size() + contenders.size());
    for (Contender& contender : contenders) {
      const auto same = [&](const Row& row) { return row.label == contender.label; };
      auto row = std::find_if(rows->begin(), rows->end(), same);
      if (row == rows->end()) {
        row = rows->insert(
            rows->end(),
            Row{what, total_bytes(what, job_.options.ranks), contender.label, contender.ours, {}});
      }
      contender.timing = &row->timing[mode];
    }
    for (Contender& contender : contenders) {
      advance(in_mode, contender);
      if (Failure failure = check(in_mode, contender)) return failure;
      if (Failure failure = calibrate(in_mode, contender)) return failure;
    }
    for (int round = 0; round < job_.options.rounds; ++round) {
      if (Failure failure = run_round(in_mode, contenders)) return failure;
    }
    if (Failure failure = steady(in_mode, contenders)) return failure;
    for (Contender& contender : contenders) {
      summarise(contender.timing);
      if (job_.on_gpu) add_ceiling(in_mode, contender);
    }
    compare(rows, mode);
  }
  return std::nullopt;
}

Failure Bench::run_round(const Case& what, std::vector<Contender>& contenders) {
  for (Contender& contender : contenders) {
    if (contender.beaten) continue;
    double time_us = 0;
    if (Failure failure = run_batch(what, contender, &time_us)) return failure;
    contender.timing->rounds_us.push_back(time_us);
  }
  return std::nullopt;
}

// More rounds of ours and of the peers that come near it, where their ratio still swings.
Failure Bench::steady(const Case& what, std::vector<Contender>& contenders) {
  constexpr double kFarBehind = 1.5;
  const auto ours =
      std::find_if(contenders.begin(), contenders.end(), [](const Contender& c) { return c.ours; });
  double best = std::numeric_limits<double>::infinity();
  const auto ratio_of = [&](const Contender& peer) {
    return median(paired_ratios(*ours->timing, *peer.timing));
  };
  if (ours == contenders.end()) return std::nullopt;
  for (const Contender& c : contenders) {
    if (!c.ours) best = std::min(best, ratio_of(c));
  }
  for (Contender& c : contenders) c.beaten = !c.ours && ratio_of(c) > kFarBehind * best;
  const int most = (kMostRounds - 1) * job_.options.rounds;
  for (int extra = 0; extra < most; ++extra) {
    const bool done = std::all_of(contenders.begin(), contenders.end(), [&](const Contender& c) {
      return c.ours || c.beaten || is_steady(paired_ratios(*ours->timing, *c.timing));
    });
    if (done) break;
    if (Failure failure = run_round(what, contenders)) return failure;
  }
  return std::nullopt;
}

Failure Bench::ask(const Contender& contender, Command command, std::vector<Reply>* replies) {
  copy_text(contender.setting, command.setting);
  const Failure failure = teams_[contender.team].command(command, interrupt_, replies);
  if (!failure) return std::nullopt;
  return *failure + "\n  while it ran " + label_of(op_name(command.what.op), contender.setting);
}

Failure Bench::check(const Case& what, Contender& contender) {
  std::vector<Reply> replies;
  Command command;
  command.what = what;
  if (contender.ours && !contender.setting.empty()) {
    // An algorithm that does not exist is the user's slip, and the library's sentence says it best.
    command.verb = Verb::kPrepare;
    copy_text(contender.setting, command.setting);
    std::string refusal;
    Team& team = teams_[contender.team];
    if (Failure failure = team.query(command, interrupt_, &replies, &refusal)) return failure;
    is_usage_failure_ = !refusal.empty();
    if (is_usage_failure_) return refusal;
  }
  const auto check_once = [&](std::uint64_t seed, bool specials) -> Failure {
    command.verb = Verb::kCheck;
    command.arg = seed;
    command.specials = specials ? 1 : 0;
    if (Failure failure = ask(contender, command, &replies)) return failure;
    for (const Reply& reply : replies) *contender.timing->wrong += reply.number;
    return std::nullopt;
  };
  const int times = job_.options.check_iters;
  if (times > 0 && what.op != Op::kBarrier) contender.timing->wrong = 0;
  for (int i = 0; i < times; ++i) {
    const std::uint64_t seed = job_.options.seed + static_cast<std::uint64_t>(i);
    if (Failure failure = check_once(seed, false)) return failure;
  }
  if (job_.options.check && reduces(what.op) && is_float(what.type)) {
    const std::uint64_t seed = job_.options.seed + static_cast<std::uint64_t>(times);
    if (Failure failure = check_once(seed, true)) return failure;
  }
  return std::nullopt;
}

Failure Bench::run_batch(const Case& what, const Contender& contender, double* time_us) {
  Command command;
  command.verb = Verb::kRun;
  command.what = what;
  command.arg = contender.timing->iters;
  command.warmup = contender.warmup;
  std::vector<Reply> replies;
  if (Failure failure = ask(contender, command, &replies)) return failure;
  std::uint64_t slowest_ns = 0;
  for (const Reply& reply : replies) slowest_ns = std::max(slowest_ns, reply.number);
  *time_us = static_cast<double>(slowest_ns) / 1e3 / static_cast<double>(contender.timing->iters);
  return std::nullopt;
}

// A first single operation is cold, and a batch may fall into a moment when the machine is busy
// elsewhere: the fastest of three passes decides how many iterations a batch has.
Failure Bench::calibrate(const Case& what, Contender& contender) {
  std::uint64_t& iters = contender.timing->iters;
  double fastest_us = std::numeric_limits<double>::infinity();
  iters = 1;
  for (int pass = 0; pass < 3; ++pass) {
    double time_us = 0;
    contender.warmup = pass == 0 ? 1 : 0;
    if (Failure failure = run_batch(what, contender, &time_us)) return failure;
    fastest_us = std::min(fastest_us, std::max(time_us, 1e-3));
    const double wanted = job_.options.batch_ms * 1e3 / fastest_us;
    const std::uint64_t most = job_.on_gpu ? kMostItersOnGpu : kMostIters;
    iters = static_cast<std::uint64_t>(std::clamp(wanted, 1.0, static_cast<double>(most)));
    if (wanted < 0.1) break;  // far above a batch: once is enough
  }
  if (job_.options.iters > 0) iters = job_.options.iters;
  contender.warmup = fastest_us < kWarmupLimitUs ? std::max<std::uint64_t>(1, iters / 10) : 0;
  return std::nullopt;
}

void Bench::note(const std::string& text) {
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(text);
}

void Bench::advance(const Case& what, const Contender& contender) {
  progress_(turns_ - 1, turns_in_all_,
            std::string(op_name(what.op)) + " " + size_text(total_bytes(what, job_.options.ranks)) +
                (what.in_place != 0 ? " in place, " : ", ") + contender.label);
}

}  // namespace treering::perf
