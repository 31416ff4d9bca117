// Request: a checked call on its way to an operation. collectives.cpp makes it,
// Communicator::launch runs it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "core/ranges.hpp"
#include "core/types.hpp"
#include "engine/operation.hpp"

namespace treering {

// An operator of the API, resolved.
struct OpSpec {
  RedOp op = RedOp::kNone;
  bool average = false;
  bool scaled = false;
  double factor = 1.0;
  std::shared_ptr<const UserOp> user;
  bool commutative = true;
};

struct Request {
  Call call;
  bool commutative = true;
  bool in_place = false;
  bool uneven = false;             // a v-variant
  bool cut = false;                // the algorithm decides into how many chunks call.count is cut
  std::uint64_t choice_bytes = 0;  // what the choice of the algorithm goes by
  // Bytes from the start of each buffer that the call may touch on this rank; 0: it is not used.
  std::uint64_t in_bytes = 0;
  std::uint64_t out_bytes = 0;
};

// What tools call it. Its bytes are those of this rank's larger buffer.
inline RangeName range_name(const Request& r, const char* algorithm, const char* protocol) {
  RangeName name;
  name.operation = collective_name(r.call.collective);
  name.uneven = r.uneven;
  name.algorithm = algorithm;
  name.protocol = protocol;
  if (r.call.collective != Collective::kBarrier) name.bytes = std::max(r.in_bytes, r.out_bytes);
  if (r.call.collective == Collective::kSendRecv) {
    name.operation = r.call.is_send ? "send" : "recv";
    name.peer = r.call.root;
  }
  return name;
}

}  // namespace treering
