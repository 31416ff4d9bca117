// Plan: a schedule bound to one communicator's links, ready to run.
//
// Built once per (communicator, collective, algorithm, root) and cached; it does not depend on
// counts or types. Building it makes the links that it uses resident, so that running it never
// faults.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "algos/registry.hpp"
#include "algos/schedule.hpp"
#include "core/status.hpp"
#include "transports/transport.hpp"

namespace treering {

using algos::Space;
using algos::Verb;

struct PlanOperand {
  Space space = Space::kNone;
  bool peek = false;
  std::int32_t chunk = 0;
  std::int32_t peer = -1;
  std::int32_t link = -1;  // index into Plan::links
  union {
    FifoTx* tx = nullptr;  // kLink outputs
    FifoRx* rx;            // kLink inputs
  };
};

struct PlanStep {
  Verb verb = Verb::kCopy;
  bool last = false;
  bool reads_input = false;  // some operand is the caller's (or a peer's) raw input: premul applies
  std::uint16_t inputs = 0;
  std::uint16_t outputs = 0;
  std::int32_t first_operand = 0;
  // The operand whose chunk gives the length of the step's messages; -1: the call's wire partition.
  std::int32_t sized_by = -1;
  // A later round may run this step once the earlier one has passed step `gate` of the lane: the
  // last one that uses any link of this step. That keeps every link's messages in round order.
  std::int32_t gate = 0;
};

struct PlanLane {
  std::int32_t begin = 0;  // steps
  std::int32_t end = 0;
};

// A link that the plan uses, in one direction.
struct PlanLink {
  LinkId id;
  FifoTx* tx = nullptr;
  FifoRx* rx = nullptr;
  std::int32_t lane = 0;
};

class Plan {
 public:
  static Result<std::unique_ptr<Plan>> build(algos::Schedule schedule,
                                             const algos::Algorithm* algorithm,
                                             Transport& transport);

  const algos::Schedule& schedule() const { return schedule_; }
  const algos::Algorithm* algorithm() const { return algorithm_; }  // nullptr: send or receive
  const std::vector<PlanStep>& steps() const { return steps_; }
  const std::vector<PlanLane>& lanes() const { return lanes_; }
  const std::vector<PlanLink>& links() const { return links_; }
  const PlanOperand* operands(const PlanStep& step) const { return &operands_[step.first_operand]; }
  int max_operands() const { return max_operands_; }
  // Messages this plan sends or receives on link `i` when chunk c has slices(c) slices in all.
  template <class Slices>
  std::uint64_t messages(int link, Slices&& slices) const {
    std::uint64_t total = 0;
    for (const PlanStep& step : steps_) {
      const PlanOperand* o = operands(step);
      for (int j = 0; j < step.inputs + step.outputs; ++j) {
        if (o[j].link == link && !o[j].peek) total += slices(step);
      }
    }
    return total;
  }

 private:
  Status bind_links(Transport& transport);
  void set_gates();

  algos::Schedule schedule_;
  const algos::Algorithm* algorithm_ = nullptr;
  std::vector<PlanStep> steps_;  // grouped by lane
  std::vector<PlanOperand> operands_;
  std::vector<PlanLane> lanes_;
  std::vector<PlanLink> links_;
  int max_operands_ = 0;
};

}  // namespace treering
