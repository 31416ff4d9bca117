// Which calls of a group on device memory are issued together, as one kernel: sends and receives of
// a communicator, so that all of them progress at once, and collectives, to save launches. Every
// call on host memory stands alone.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/stream.hpp"

namespace treering {

// A call of a group, as far as the order of its calls depends on it.
struct GroupedCall {
  Footprint footprint;
  const void* comm = nullptr;
  const void* stream = nullptr;
  bool on_device = false;
  bool is_message = false;  // a send or receive
};

// The calls, by their places in `calls`, in the order in which they are issued. A send or receive
// on the device joins the last launch of such of its communicator, unless it must come after a call
// since then: a collective of the communicator on the device, which all ranks call and which so
// divides their messages alike, or any call whose buffers it shares (one of the two writes).
//
// A collective on the device joins the launch just before it if that has collectives of the same
// communicator on the same stream. So nothing changes places, and no stream waits for another: a
// rank whose launches are other ones, because its messages or streams are, runs the collectives of
// each communicator in the same order.
std::vector<std::vector<std::size_t>> launches_of(std::span<const GroupedCall> calls);

}  // namespace treering
