// Playback: when each step of a schedule fires, if a message takes one unit of time and nothing
// else takes any. It gives `treering explain` its rows and the page its check.
//
// Rules: a step fires as soon as the step before it in its lane has fired, all its inputs have
// arrived and every link it sends on is free; a link carries one chunk at a time. Slots are
// unbounded. Links are FIFOs with one writer lane and no probing, so the times do not depend on the
// order of evaluation.
#pragma once

#include <cstdint>
#include <vector>

#include "algos/program.hpp"
#include "core/status.hpp"

namespace treering::explain {

struct Playback {
  // [rank][step]: when it fires; steps at 0 need no message.
  std::vector<std::vector<std::int32_t>> at;
  // When the last step fires: so many messages pass one after the other.
  std::int32_t time = 0;
  // The longest chain of messages of which each waits for what the one before it brought. Smaller
  // than `time` where a link has several chunks to carry before an answer can come.
  std::int32_t hops = 0;
};

// kInternal if some rank waits for a message that never comes; the
// text names it.
Result<Playback> play(const algos::Program& program);

// The time of `slices` rounds, one slice of each chunk a round, in units of one slice's message.
// Rounds overlap as far as the order of messages on each link allows.
Result<std::int64_t> pipelined_time(const algos::Program& program, std::int64_t slices);

}  // namespace treering::explain
