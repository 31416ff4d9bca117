// The deadline that this thread asked for with tr_set_call_deadline, for the calls that it makes.
#pragma once

#include "engine/operation.hpp"

namespace treering {

inline CallDeadline& call_deadline() {
  thread_local CallDeadline deadline;
  return deadline;
}

}  // namespace treering
