// A schedule: what one rank does in one round of a collective, as data.
//
// It is what the algorithm templates (algos/ring.hpp and so on) leave behind when they run over
// TracePrims. Everything that is not the algorithm itself reads it: the host executor, the checker,
// the replay oracle, the cost model, `treering explain`, the drawings and the hang report.
//
// A step folds its inputs, in the order listed, and stores the result in all of its outputs:
//     out_1 = out_2 = ... = in_1 (op) in_2 (op) ...
// Every verb is such a step. Steps name chunks, never bytes; a partition table gives a chunk its
// bytes when a call is made (core/partition.hpp), so one schedule serves every count. A chunk of
// zero bytes is no message at either end.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "algos/prims.hpp"
#include "core/link_id.hpp"

namespace treering::algos {

// An input or output of a step.
struct Operand {
  Space space = Space::kIn;
  std::int32_t chunk = 0;  // the chunk it holds; on a link: the chunk that the message carries
  std::int32_t peer = -1;  // kPeerIn, kPeerOut, kToken: whose window
  LinkId link;             // kLink
  // kLink inputs: leave the message in the link; a later step of the same lane receives it again.
  bool peek = false;
  auto operator<=>(const Operand&) const = default;
};

struct Step {
  Verb verb = Verb::kCopy;
  // The fold is complete with this step: the engine applies what follows the sum (avg's division).
  Last last = Last::kNo;
  std::int32_t lane = 0;
  std::int32_t first_operand = 0;  // in Schedule::operands: inputs first, then outputs
  std::int32_t inputs = 0;
  std::int32_t outputs = 0;
};

// One rank's steps. Within a lane they run in order; lanes are independent but for the links.
struct Schedule {
  int rank = 0;
  int size = 0;
  int lanes = 1;
  std::vector<Step> steps;
  std::vector<Operand> operands;

  std::span<const Operand> inputs(const Step& s) const {
    return std::span(operands).subspan(s.first_operand, s.inputs);
  }
  std::span<const Operand> outputs(const Step& s) const {
    return std::span(operands).subspan(s.first_operand + s.inputs, s.outputs);
  }
};

// "recv_reduce_send chunk 3: 1->2, in[3] => 2->3"
std::string to_string(const Schedule& schedule, const Step& step);

}  // namespace treering::algos
