#include "sim/simulator.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "sim/wires.hpp"

namespace treering::sim {
namespace {

constexpr std::uint64_t kTokenBytes = 64;  // of a publish
constexpr int kOpenRounds = 2;
constexpr double kNever = 1e300;

// Lanes as processes of a network of links, as in algos/network.hpp, with a clock.
class Simulation {
 public:
  Simulation(const Workload& workload, const Programs& programs, const Fabric& fabric,
             const SimOptions& options)
      : w_(workload),
        p_(programs),
        fabric_(fabric),
        core_(fabric.core()),
        options_(options),
        wires_(fabric) {}

  Result<SimResult> run(std::uint64_t most_rounds) {
    TR_RETURN_IF_ERROR(prepare(most_rounds));
    for (std::size_t i = 0; i < lanes_.size(); ++i) look(static_cast<std::int32_t>(i));
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.what < 0) {
        arrive(event.at, -event.what - 1);
      } else if (lanes_[event.what].wake_us == event.at) {
        lanes_[event.what].wake_us = kNever;
        step(event.what, event.at);
      }
    }
    for (const Lane& lane : lanes_) {
      if (lane.done < rounds_) return stands_still();
    }
    return finish();
  }

 private:
  // A round of a lane that is under way.
  struct Round {
    std::uint64_t number = 0;
    std::int32_t step = 0;     // of the program
    std::uint64_t slice = 0;   // of the chunk
    std::int32_t operand = 0;  // those before it are there
    double ready_us = 0;       // when they are
    double after_us = 0;       // the end of the last slice
  };
  struct Lane {
    std::int32_t rank = 0;
    std::int32_t first = 0, end = 0;  // steps
    std::uint64_t done = 0;           // rounds
    int open = 0;
    Round rounds[kOpenRounds];  // the older first
    double wake_us = kNever;
    double end_us = 0;
  };
  struct Link {
    std::int32_t route = 0;
    std::int32_t writer = -1, reader = -1;  // lanes
    std::uint32_t issued = 0, posted = 0, taken = 0;
    Arrivals::Queue arrivals;  // of those that nobody has taken
    double last_us = 0;
  };
  struct Message {
    std::int32_t link = 0;
    std::uint64_t bytes = 0;
  };
  struct Event {
    double at = 0;
    std::uint64_t order = 0;
    std::int32_t what = 0;  // a lane; below 0: a message leaves
    bool operator>(const Event& o) const { return at != o.at ? at > o.at : order > o.order; }
  };

  Status prepare(std::uint64_t most_rounds) {
    if (fabric_.ranks() != w_.ranks) {
      return invalid_argument("the cluster has " + std::to_string(fabric_.ranks()) +
                              " ranks, the schedule " + std::to_string(w_.ranks));
    }
    prefix_.assign(1, 0);
    for (const std::uint64_t bytes : w_.chunk_bytes) prefix_.push_back(prefix_.back() + bytes);
    const std::uint64_t largest =
        w_.chunk_bytes.empty() ? 0
                               : *std::max_element(w_.chunk_bytes.begin(), w_.chunk_bytes.end());
    std::int32_t chunks = 1;
    for (const Program& program : p_.programs) {
      for (const ProgramStep& s : program.steps) chunks = std::max(chunks, s.chunks);
    }
    const std::uint64_t most = std::max<std::uint64_t>(
        1, slices_of(std::min(largest * static_cast<std::uint64_t>(chunks), prefix_.back())));
    per_round_ = w_.slices_per_round == 0 ? most : w_.slices_per_round;
    all_rounds_ = rounds_ = slices_in(most, per_round_);
    const std::uint64_t of_a_round = std::max<std::uint64_t>(p_.steps, 1) * per_round_;
    if (of_a_round > 4 * options_.max_slices) {
      return unsupported(w_.name + ": a round has " + std::to_string(of_a_round) +
                         " messages, more than are simulated (" +
                         std::to_string(4 * options_.max_slices) +
                         "); take fewer ranks, larger slices or fewer slices a round");
    }
    const std::uint64_t budget = std::max<std::uint64_t>(options_.max_slices / of_a_round, 8);
    rounds_ = std::min({rounds_, budget, most_rounds});
    links_.resize(p_.links.size());
    for (std::size_t i = 0; i < p_.links.size(); ++i) {
      links_[i].route = static_cast<std::int32_t>(i);
      wires_.add(fabric_.route(p_.links[i].src, p_.links[i].dst));
    }
    if (w_.slots > 0) freed_us_.assign(links_.size() * w_.slots, 0);
    core_free_us_.assign(static_cast<std::size_t>(w_.ranks), 0);
    for (int rank = 0; rank < w_.ranks; ++rank) {
      const Program& program = p_.programs[p_.of_rank[rank]];
      for (int l = 0; l < program.lanes(); ++l) add_lane(rank, program, l);
    }
    if (!core_.one_core) core_free_us_.assign(lanes_.size(), 0);
    return {};
  }

  void add_lane(int rank, const Program& program, int number) {
    Lane lane;
    lane.rank = rank;
    lane.first = program.lane_begin[number];
    lane.end = program.lane_begin[number + 1];
    const auto id = static_cast<std::int32_t>(lanes_.size());
    for (std::int32_t s = lane.first; s < lane.end; ++s) {
      const ProgramStep& step = program.steps[s];
      for (std::int32_t k = 0; k < step.inputs + step.outputs; ++k) {
        const ProgramOperand& o = program.operands[step.first_operand + k];
        if (o.use != Use::kLink) continue;
        Link& link = links_[p_.rank_links[rank][o.link]];
        (k < step.inputs ? link.reader : link.writer) = id;
      }
    }
    lanes_.push_back(lane);
    open_rounds(lanes_.back());
  }

  void open_rounds(Lane& lane) {
    if (lane.first == lane.end) lane.done = rounds_;
    while (lane.open < kOpenRounds && lane.done + static_cast<std::uint64_t>(lane.open) < rounds_) {
      Round& round = lane.rounds[lane.open];
      round = {};
      round.number = lane.done + static_cast<std::uint64_t>(lane.open);
      round.step = lane.first;
      round.slice = round.number * per_round_;
      round.after_us = lane.end_us;
      ++lane.open;
    }
  }

  std::uint64_t bytes_of(const Lane& lane, const ProgramStep& s) const {
    if (s.token) return kTokenBytes;
    const int first = s.relative ? algos::mod(s.first_chunk + lane.rank, w_.ranks) : s.first_chunk;
    return prefix_[first + s.chunks] - prefix_[first];
  }
  std::uint64_t slices_of(std::uint64_t bytes) const { return slices_in(bytes, w_.slice_bytes); }
  const Program& program_of(const Lane& lane) const { return p_.programs[p_.of_rank[lane.rank]]; }
  double& core_free(std::int32_t lane) {
    return core_free_us_[core_.one_core ? lanes_[lane].rank : lane];
  }
  Link& link_of(const Lane& lane, const ProgramOperand& o) {
    return links_[p_.rank_links[lane.rank][o.link]];
  }

  // Passes over what the round has nothing to do for; false at its end.
  bool settle(const Lane& lane, Round& round) const {
    const Program& program = program_of(lane);
    while (round.step < lane.end) {
      const ProgramStep& s = program.steps[round.step];
      const std::uint64_t begin = round.number * per_round_;
      const std::uint64_t count = s.token ? (round.number == 0) : slices_of(bytes_of(lane, s));
      if (round.slice < std::min(begin + per_round_, count)) return true;
      ++round.step;
      round.slice = begin;
      round.operand = 0;
      round.ready_us = 0;
    }
    return false;
  }

  // When the round's next slice could start; kNever if it waits for what is not known yet.
  double ready(Lane& lane, Round& round) {
    const Program& program = program_of(lane);
    const ProgramStep& s = program.steps[round.step];
    for (; round.operand < s.inputs + s.outputs; ++round.operand) {
      const ProgramOperand& o = program.operands[s.first_operand + round.operand];
      if (o.use != Use::kLink) continue;
      const std::int32_t id = p_.rank_links[lane.rank][o.link];
      const Link& link = links_[id];
      double at = 0;
      if (round.operand < s.inputs) {
        const auto ahead =
            static_cast<std::uint32_t>(o.peek ? round.slice - round.number * per_round_ : 0);
        if (link.posted - link.taken <= ahead) return kNever;
        at = arrivals_.at(link.arrivals, ahead);
      } else if (w_.slots > 0 && link.issued >= w_.slots) {
        if (link.issued - link.taken >= w_.slots) return kNever;
        at = freed_us_[static_cast<std::size_t>(id) * w_.slots + link.issued % w_.slots];
      }
      round.ready_us = std::max(round.ready_us, at);
    }
    return std::max(round.ready_us, round.after_us);
  }

  // Which open round can go on first, and when.
  std::pair<double, int> next(Lane& lane) {
    std::pair<double, int> best{kNever, -1};
    for (int i = 0; i < lane.open; ++i) {
      Round& round = lane.rounds[i];
      if (!settle(lane, round)) continue;
      if (i > 0 && program_of(lane).steps[round.step].gate >= lane.rounds[0].step) continue;
      const double at = ready(lane, round);
      if (at < best.first) best = {at, i};
    }
    return best;
  }

  void push(double at, std::int32_t what) { events_.push({at, order_++, what}); }

  // Has something come up for the lane?
  void look(std::int32_t id) {
    Lane& lane = lanes_[id];
    close_rounds(lane);
    const double at = std::max(next(lane).first, core_free(id));
    if (at >= kNever || at >= lane.wake_us) return;
    lane.wake_us = at;
    push(at, id);
  }

  void close_rounds(Lane& lane) {
    while (lane.open > 0 && !settle(lane, lane.rounds[0])) {
      lane.end_us = std::max(lane.end_us, lane.rounds[0].after_us);
      lane.rounds[0] = lane.rounds[1];
      --lane.open;
      ++lane.done;
      open_rounds(lane);
    }
  }

  void step(std::int32_t id, double now) {
    Lane& lane = lanes_[id];
    const auto [at, which] = next(lane);
    if (which < 0) return;
    const double start = std::max(at, core_free(id));
    if (start > now) {
      lane.wake_us = start;
      return push(start, id);
    }
    execute(id, lane.rounds[which], now);
    close_rounds(lane);
    look(id);
  }

  void execute(std::int32_t id, Round& round, double now) {
    Lane& lane = lanes_[id];
    const Program& program = program_of(lane);
    const ProgramStep& s = program.steps[round.step];
    const auto operands =
        std::span(program.operands).subspan(s.first_operand, s.inputs + s.outputs);
    const std::uint64_t whole = bytes_of(lane, s);
    const std::uint64_t bytes =
        w_.slice_bytes == 0 || s.token
            ? whole
            : std::min(w_.slice_bytes, whole - round.slice * w_.slice_bytes);
    const auto b = static_cast<double>(bytes);
    double end = now + core_.step_us + b * core_.reduce_us_per_byte * s.folds +
                 (s.writes ? b * core_.copy_us_per_byte : 0);
    double windows_end = 0;
    for (std::int32_t k = 0; k < s.inputs; ++k) {
      if (operands[k].use == Use::kWrite) continue;
      const Link& link = link_of(lane, operands[k]);
      end += (operands[k].use == Use::kLink ? wires_.route(link.route).recv_us : 0) +
             b * core_.link_read_us_per_byte;
      if (operands[k].use == Use::kRead)
        windows_end = std::max(windows_end, wires_.cross(link.route, bytes, now));
    }
    const bool once = s.cast && core_.casts_stored_once;
    for (std::int32_t k = s.inputs; k < s.inputs + s.outputs; ++k) {
      const Link& link = link_of(lane, operands[k]);
      const bool is_link = operands[k].use == Use::kLink;
      if (!once || k == s.inputs) {
        end += (is_link ? wires_.route(link.route).send_us : 0) + b * core_.link_write_us_per_byte;
      }
      if (is_link)
        leave(p_.rank_links[lane.rank][operands[k].link], bytes, end, now);
      else
        windows_end = std::max(windows_end, wires_.cross(link.route, bytes, now));
    }
    end = std::max(end, windows_end);
    for (std::int32_t k = 0; k < s.inputs; ++k) {
      if (operands[k].use == Use::kLink && !operands[k].peek) take(lane, operands[k], end);
    }
    round.after_us = end;
    core_free(id) = end;
    if (result_.spans.size() < options_.max_spans) {
      const int first =
          s.relative ? algos::mod(s.first_chunk + lane.rank, w_.ranks) : s.first_chunk;
      result_.spans.push_back({now, end, lane.rank, s.lane, s.verb, first,
                               static_cast<std::uint32_t>(round.slice), bytes});
    }
    ++round.slice;
    round.operand = 0;
    round.ready_us = 0;
  }

  void leave(std::int32_t link, std::uint64_t bytes, double at, double now) {
    ++links_[link].issued;
    std::int32_t slot = 0;
    if (spare_messages_.empty()) {
      slot = static_cast<std::int32_t>(messages_.size());
      messages_.push_back({});
    } else {
      slot = spare_messages_.back();
      spare_messages_.pop_back();
    }
    messages_[slot] = {link, bytes};
    push(std::max(at, now), -slot - 1);
  }

  void arrive(double now, std::int32_t slot) {
    const Message m = messages_[slot];
    spare_messages_.push_back(slot);
    Link& link = links_[m.link];
    link.last_us = std::max(link.last_us, wires_.cross(link.route, m.bytes, now));
    arrivals_.push(link.arrivals, link.last_us);
    ++link.posted;
    ++result_.messages;
    if (link.reader >= 0) look(link.reader);
  }

  void take(const Lane& lane, const ProgramOperand& o, double end) {
    const std::int32_t id = p_.rank_links[lane.rank][o.link];
    Link& link = links_[id];
    arrivals_.pop(link.arrivals);
    if (w_.slots > 0)
      freed_us_[static_cast<std::size_t>(id) * w_.slots + link.taken % w_.slots] = end;
    ++link.taken;
    if (w_.slots > 0 && link.writer >= 0) look(link.writer);
  }

  // The operand that the lane's older round waits for; nullptr if it waits for none.
  const ProgramOperand* awaited(Lane& lane) {
    if (lane.open == 0 || !settle(lane, lane.rounds[0])) return nullptr;
    const ProgramStep& s = program_of(lane).steps[lane.rounds[0].step];
    const std::int32_t i = lane.rounds[0].operand;
    return i < s.inputs + s.outputs ? &program_of(lane).operands[s.first_operand + i] : nullptr;
  }

  // Names a lane whose peer has ended, if there is one: the others wait because of it.
  Status stands_still() {
    std::string text;
    for (Lane& lane : lanes_) {
      const ProgramOperand* o = lane.done < rounds_ ? awaited(lane) : nullptr;
      if (o == nullptr) continue;
      const ProgramStep& s = program_of(lane).steps[lane.rounds[0].step];
      const bool for_message = lane.rounds[0].operand < s.inputs;
      const Link& link = link_of(lane, *o);
      const LinkKey& key = p_.links[link.route];
      const std::int32_t peer = for_message ? link.writer : link.reader;
      const bool in_vain = peer < 0 || lanes_[peer].done == rounds_;
      if (!text.empty() && !in_vain) continue;
      text = ": rank " + std::to_string(lane.rank) + " waits at " + algos::verb_name(s.verb) +
             (for_message ? " for a message " : " for a free slot ") + std::to_string(key.src) +
             "->" + std::to_string(key.dst);
      if (in_vain) break;
    }
    return invalid_argument(w_.name + " stands still" + text);
  }

  Result<SimResult> finish() {
    SimResult& r = result_;
    r.rank_us.assign(static_cast<std::size_t>(w_.ranks), 0);
    for (const Lane& lane : lanes_) {
      r.rank_us[lane.rank] = std::max(r.rank_us[lane.rank], lane.end_us);
      r.time_us = std::max(r.time_us, lane.end_us);
    }
    r.simulated_rounds = rounds_;
    r.rounds = all_rounds_;
    r.loads = wires_.take_loads();
    return std::move(result_);
  }

  const Workload& w_;
  const Programs& p_;
  const Fabric& fabric_;
  const CoreCosts core_;
  const SimOptions& options_;
  std::vector<std::uint64_t> prefix_;  // of chunk_bytes
  std::uint64_t per_round_ = 1, rounds_ = 1, all_rounds_ = 1;
  std::vector<Lane> lanes_;
  std::vector<Link> links_;
  Wires wires_;
  std::vector<double> freed_us_, core_free_us_;
  Arrivals arrivals_;
  std::vector<Message> messages_;
  std::vector<std::int32_t> spare_messages_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  SimResult result_;
};

// What all rounds take, from what the first ones and half of these take.
void extrapolate(SimResult& r, const SimResult& half) {
  const auto rest = static_cast<double>(r.rounds - r.simulated_rounds);
  const auto later = static_cast<double>(r.simulated_rounds - half.simulated_rounds);
  const double factor = static_cast<double>(r.rounds) / static_cast<double>(r.simulated_rounds);
  const double more_us = (r.time_us - half.time_us) / later * rest;
  r.time_us += more_us;
  for (double& t : r.rank_us) t += more_us;
  r.messages = static_cast<std::uint64_t>(std::llround(static_cast<double>(r.messages) * factor));
  for (Load& load : r.loads) {
    load.busy_us *= factor;
    load.bytes *= factor;
    load.messages =
        static_cast<std::uint64_t>(std::llround(static_cast<double>(load.messages) * factor));
  }
}

}  // namespace

Result<SimResult> simulate(const Workload& workload, const Programs& programs, const Fabric& fabric,
                           const SimOptions& options) {
  TR_ASSIGN_OR_RETURN(SimResult result,
                      Simulation(workload, programs, fabric, options).run(~std::uint64_t{0}));
  if (result.simulated_rounds == result.rounds) return result;
  SimOptions quiet = options;
  quiet.max_spans = 0;
  TR_ASSIGN_OR_RETURN(
      const SimResult half,
      Simulation(workload, programs, fabric, quiet).run(result.simulated_rounds / 2));
  extrapolate(result, half);
  return result;
}

Result<SimResult> simulate(const Workload& workload, const Fabric& fabric,
                           const SimOptions& options) {
  TR_ASSIGN_OR_RETURN(const Programs programs, compile(workload));
  return simulate(workload, programs, fabric, options);
}

}  // namespace treering::sim
