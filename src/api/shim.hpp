// The way from the C API into the library: one catch-all, the last error per thread, and the tables
// that turn handles into objects.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "treering/treering.h"

#include "api/comm_table.hpp"
#include "api/handles.hpp"
#include "comm/group.hpp"
#include "comm/request.hpp"
#include "comm/stream.hpp"
#include "core/status.hpp"
#include "core/types.hpp"

namespace treering::api {

// Stores the error text for tr_get_last_error and returns the code. In a group the error is also
// kept for tr_group_end.
tr_result_t finish(const Status& status, bool call_in_group);

// Runs `body` (returning Status); nothing is thrown across the C boundary.
template <class Body>
tr_result_t guarded(Body&& body, bool call_in_group = false) {
  try {
    return finish(body(), call_in_group);
  } catch (const std::bad_alloc&) {
    return finish(Status(Code::kSystem, "out of memory"), call_in_group);
  } catch (const std::exception& e) {
    return finish(internal_error(e.what()), call_in_group);
  }
}

HandleTable<Stream>& streams();
HandleTable<Event>& events();

// NULL is the blocking stream: an empty pointer and no error.
Status find_stream(tr_stream_t handle, std::shared_ptr<Stream>* stream);
Status check_type(tr_type_t type);
Status find_op(tr_op_t op, OpSpec* spec);
Status check_pointer(const char* name, const void* ptr);

}  // namespace treering::api
