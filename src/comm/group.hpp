// Groups: calls between start and end are kept, issued together at the outermost end, and progress
// together. State is per thread.
#pragma once

#include "comm/communicator.hpp"
#include "comm/request.hpp"
#include "comm/stream.hpp"
#include "core/status.hpp"

namespace treering {

bool in_group();
void group_start();
// Issues what was kept and waits for the calls without a stream. The first error of a call inside
// the group makes it issue nothing and return that error.
Status group_end();
// A call inside the group failed its checks.
void group_note_error(const Status& status);

// Runs the request now, or keeps it (moved from) when in a group.
Status run_or_keep(Communicator& comm, Request& request, std::shared_ptr<Stream> stream);

// The communicator is about to be destroyed: calls kept for it in this thread's group are an error.
bool group_uses(const Communicator& comm);

}  // namespace treering
