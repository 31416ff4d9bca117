#include "cli/explain/playback.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "core/link_id.hpp"

namespace treering::explain {
namespace {

using algos::Operand;
using algos::Schedule;
using algos::Space;
using algos::Step;
using algos::Verb;

struct Message {
  std::int64_t arrives = 0;
  std::int32_t depth = 0;  // messages in the chain that ends with this one
};

struct Link {
  LinkId id;
  std::int64_t free_at = 0;
  std::vector<Message> sent;       // of the current round
  std::vector<std::size_t> taken;  // per reader: one, or each rank of a cast

  std::size_t& taken_by(int rank) { return taken[id.kind == LinkId::Kind::kCast ? rank : 0]; }
};

struct Lane {
  int rank = 0;
  std::vector<int> steps;          // indices into Schedule::steps
  std::vector<std::size_t> gates;  // per step: the last step of the lane that uses one of its links
  std::vector<std::int64_t> before;  // per step: when it fired in the round before
  std::vector<std::int64_t> fired;   // in this round; size() is the cursor
  std::int32_t depth =
      0;  // of what later steps depend on without reading it: an await; in a barrier, all
};

class Player {
 public:
  explicit Player(const algos::Program& program)
      : schedules_(program.ranks), barrier_(program.collective == Collective::kBarrier) {
    for (const Schedule& s : schedules_) add_rank(s);
  }

  // One round more.
  Status round() {
    for (Link& link : links_) {
      link.sent.clear();
      std::fill(link.taken.begin(), link.taken.end(), 0);
    }
    for (Lane& lane : lanes_) {
      lane.before = std::exchange(lane.fired, {});
      lane.depth = 0;
    }
    for (auto& depths : out_depth_) depths.clear();
    bool progress = true;
    while (progress) {
      progress = false;
      for (Lane& lane : lanes_) {
        while (lane.fired.size() < lane.steps.size() && fire(lane)) progress = true;
      }
    }
    return finished();
  }

  std::int64_t time() const { return time_; }
  std::int32_t hops() const { return hops_; }
  std::vector<std::vector<std::int32_t>> times() const {
    std::vector<std::vector<std::int32_t>> at;
    for (const Schedule& s : schedules_) at.emplace_back(s.steps.size());
    for (const Lane& lane : lanes_) {
      for (std::size_t i = 0; i < lane.steps.size(); ++i) {
        at[lane.rank][lane.steps[i]] = static_cast<std::int32_t>(lane.fired[i]);
      }
    }
    return at;
  }

 private:
  void add_rank(const Schedule& schedule) {
    const std::size_t first = lanes_.size();
    lanes_.resize(first + schedule.lanes);
    out_depth_.emplace_back();
    for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
      Lane& lane = lanes_[first + schedule.steps[i].lane];
      lane.rank = schedule.rank;
      lane.steps.push_back(static_cast<int>(i));
    }
    for (std::size_t l = first; l < lanes_.size(); ++l) set_gates(schedule, lanes_[l]);
  }

  void set_gates(const Schedule& schedule, Lane& lane) {
    std::map<LinkId, std::size_t> last_use;
    const auto each_link = [&](std::size_t i, auto&& visit) {
      const Step& step = schedule.steps[lane.steps[i]];
      for (const Operand& o : schedule.inputs(step))
        if (o.space == Space::kLink) visit(o.link);
      for (const Operand& o : schedule.outputs(step))
        if (o.space == Space::kLink) visit(o.link);
    };
    for (std::size_t i = 0; i < lane.steps.size(); ++i) {
      each_link(i, [&](const LinkId& id) {
        last_use[id] = i;
        link(id);
      });
    }
    for (std::size_t i = 0; i < lane.steps.size(); ++i) {
      std::size_t gate = i;
      each_link(i, [&](const LinkId& id) { gate = std::max(gate, last_use[id]); });
      lane.gates.push_back(gate);
    }
  }

  Link& link(const LinkId& id) {
    const auto [it, fresh] = index_.try_emplace(id, links_.size());
    if (fresh) {
      Link made;
      made.id = id;
      made.taken.resize(id.kind == LinkId::Kind::kCast ? schedules_.size() : 1);
      links_.push_back(std::move(made));
    }
    return links_[it->second];
  }

  // Fires the next step of the lane if its inputs are there.
  bool fire(Lane& lane) {
    const Schedule& schedule = schedules_[lane.rank];
    const std::size_t cursor = lane.fired.size();
    const Step& step = schedule.steps[lane.steps[cursor]];
    std::int64_t at = cursor > 0 ? lane.fired.back() : 0;
    if (!lane.before.empty()) at = std::max(at, lane.before[lane.gates[cursor]]);
    std::int32_t depth = lane.depth;
    for (const Operand& o : schedule.inputs(step)) {
      if (o.space == Space::kOut) depth = std::max(depth, out_depth_[lane.rank][o.chunk]);
      if (o.space == Space::kPeerOut) depth = std::max(depth, out_depth_[o.peer][o.chunk]);
      if (o.space != Space::kLink) continue;
      Link& from = link(o.link);
      const std::size_t next = from.taken_by(lane.rank);
      if (next == from.sent.size()) return false;
      at = std::max(at, from.sent[next].arrives);
      depth = std::max(depth, from.sent[next].depth);
    }
    for (const Operand& o : schedule.outputs(step)) {
      if (o.space == Space::kLink) at = std::max(at, link(o.link).free_at);
    }

    for (const Operand& o : schedule.inputs(step)) {
      if (o.space == Space::kLink && !o.peek) ++link(o.link).taken_by(lane.rank);
    }
    for (const Operand& o : schedule.outputs(step)) {
      if (o.space == Space::kOut) out_depth_[lane.rank][o.chunk] = depth;
      if (o.space == Space::kPeerOut) out_depth_[o.peer][o.chunk] = depth;
      if (o.space != Space::kLink) continue;
      Link& to = link(o.link);
      to.sent.push_back({at + 1, depth + 1});
      to.free_at = at + 1;
    }
    if (step.verb == Verb::kAwait || barrier_) lane.depth = depth;
    lane.fired.push_back(at);
    time_ = std::max(time_, at);
    hops_ = std::max(hops_, depth);
    return true;
  }

  Status finished() {
    for (Lane& lane : lanes_) {
      if (lane.fired.size() == lane.steps.size()) continue;
      const Schedule& schedule = schedules_[lane.rank];
      const Step& step = schedule.steps[lane.steps[lane.fired.size()]];
      return internal_error("the schedule does not end: rank " + std::to_string(lane.rank) +
                            " waits for ever in step '" + to_string(schedule, step) + "'");
    }
    return {};
  }

  std::span<const Schedule> schedules_;
  bool barrier_;
  std::vector<Lane> lanes_;
  std::vector<Link> links_;
  std::map<LinkId, std::size_t> index_;
  std::vector<std::map<int, std::int32_t>> out_depth_;  // [rank]: chunk -> depth of what it holds
  std::int64_t time_ = 0;
  std::int32_t hops_ = 0;
};

}  // namespace

Result<Playback> play(const algos::Program& program) {
  Player player(program);
  TR_RETURN_IF_ERROR(player.round());
  return Playback{player.times(), static_cast<std::int32_t>(player.time()), player.hops()};
}

Result<std::int64_t> pipelined_time(const algos::Program& program, std::int64_t slices) {
  Player player(program);
  for (std::int64_t i = 0; i < slices; ++i) TR_RETURN_IF_ERROR(player.round());
  return player.time();
}

}  // namespace treering::explain
