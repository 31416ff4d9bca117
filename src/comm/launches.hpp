// Which calls of a group are issued together: sends and receives of a communicator on device memory
// become one kernel, so that all of them progress at once; every other call stands alone.
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
  bool on_device = false;
  bool is_message = false;  // a send or receive
};

// The calls, by their places in `calls`, in the order in which they are issued. A send or receive
// on the device joins the last launch of such of its communicator, unless it must come after a call
// since then: a collective of the communicator on the device, which all ranks call and which so
// divides their messages alike, or any call whose buffers it shares (one of the two writes).
std::vector<std::vector<std::size_t>> launches_of(std::span<const GroupedCall> calls);

}  // namespace treering
