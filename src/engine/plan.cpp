#include "engine/plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace treering {

Result<std::unique_ptr<Plan>> Plan::build(algos::Schedule schedule,
                                          const algos::Algorithm* algorithm, Transport& transport) {
  auto plan = std::make_unique<Plan>();
  plan->schedule_ = std::move(schedule);
  plan->algorithm_ = algorithm;
  const algos::Schedule& s = plan->schedule_;
  for (int lane = 0; lane < s.lanes; ++lane) {
    PlanLane range;
    range.begin = static_cast<std::int32_t>(plan->steps_.size());
    for (const algos::Step& step : s.steps) {
      if (step.lane != lane) continue;
      PlanStep p;
      p.verb = step.verb;
      p.last = step.last == algos::Last::kYes;
      p.inputs = static_cast<std::uint16_t>(step.inputs);
      p.outputs = static_cast<std::uint16_t>(step.outputs);
      p.first_operand = static_cast<std::int32_t>(plan->operands_.size());
      for (int i = 0; i < step.inputs + step.outputs; ++i) {
        const algos::Operand& o = s.operands[step.first_operand + i];
        PlanOperand bound;
        bound.space = o.space;
        bound.peek = o.peek;
        bound.chunk = o.chunk;
        bound.peer = o.peer;
        if (p.sized_by < 0 && o.space != Space::kLink) p.sized_by = i;
        p.reads_input |= o.space == Space::kIn && i < step.inputs;
        plan->operands_.push_back(bound);
      }
      plan->max_operands_ = std::max(plan->max_operands_, step.inputs + step.outputs);
      plan->steps_.push_back(p);
    }
    range.end = static_cast<std::int32_t>(plan->steps_.size());
    if (range.end > range.begin) plan->lanes_.push_back(range);
  }
  TR_RETURN_IF_ERROR(plan->bind_links(transport));
  plan->set_gates();
  return plan;
}

Status Plan::bind_links(Transport& transport) {
  std::map<std::pair<LinkId, bool>, std::int32_t> index;  // (link, is_output) -> links_
  // Steps were regrouped by lane, so walk the recorded steps in the same order again.
  std::size_t at = 0;
  for (int lane = 0; lane < schedule_.lanes; ++lane) {
    for (const algos::Step& step : schedule_.steps) {
      if (step.lane != lane) continue;
      for (int i = 0; i < step.inputs + step.outputs; ++i) {
        PlanOperand& bound = operands_[at++];
        if (bound.space != Space::kLink) continue;
        const LinkId id = schedule_.operands[step.first_operand + i].link;
        const bool is_output = i >= step.inputs;
        auto [it, fresh] =
            index.try_emplace({id, is_output}, static_cast<std::int32_t>(links_.size()));
        if (fresh) {
          PlanLink link;
          link.id = id;
          link.lane = lane;
          if (is_output) {
            TR_ASSIGN_OR_RETURN(link.tx, transport.tx(id));
          } else {
            TR_ASSIGN_OR_RETURN(link.rx, transport.rx(id));
          }
          links_.push_back(link);
        }
        PlanLink& link = links_[it->second];
        if (link.lane != lane) {
          return internal_error("link " + to_string(id) + " is used by lanes " +
                                std::to_string(link.lane) + " and " + std::to_string(lane));
        }
        bound.link = it->second;
        if (is_output) {
          bound.tx = link.tx;
        } else {
          bound.rx = link.rx;
        }
      }
    }
  }
  return {};
}

void Plan::set_gates() {
  for (const PlanLane& lane : lanes_) {
    std::vector<std::int32_t> last_use(links_.size(), -1);
    for (std::int32_t s = lane.begin; s < lane.end; ++s) {
      for (int i = 0; i < steps_[s].inputs + steps_[s].outputs; ++i) {
        const std::int32_t link = operands(steps_[s])[i].link;
        if (link >= 0) last_use[link] = s;
      }
    }
    for (std::int32_t s = lane.begin; s < lane.end; ++s) {
      std::int32_t gate = s;  // never ahead of the earlier round on the same buffer chunk either
      for (int i = 0; i < steps_[s].inputs + steps_[s].outputs; ++i) {
        const std::int32_t link = operands(steps_[s])[i].link;
        if (link >= 0) gate = std::max(gate, last_use[link]);
      }
      steps_[s].gate = gate;
    }
  }
}

}  // namespace treering
