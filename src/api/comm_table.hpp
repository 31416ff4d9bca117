// The table of communicators. A call pins its communicator without a lock: the slot's entry flag
// keeps out both a second thread and a concurrent destroy.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "treering/treering.h"

#include "comm/communicator.hpp"
#include "core/status.hpp"

namespace treering::api {

tr_comm_t add_comm(std::shared_ptr<Communicator> comm);

// A call on a communicator: holds the entry flag for its life.
class CommCall {
 public:
  CommCall() = default;
  CommCall(const CommCall&) = delete;
  CommCall& operator=(const CommCall&) = delete;
  ~CommCall();
  Status enter(tr_comm_t handle);
  Communicator& comm() { return *comm_; }
  // Ends the life of the handle; the caller destroys what it gets.
  std::shared_ptr<Communicator> take();

 private:
  struct Slot* slot_ = nullptr;
  Communicator* comm_ = nullptr;
};

// For abort and async_error, which any thread may call at any time.
Result<std::shared_ptr<Communicator>> share_comm(tr_comm_t handle);

}  // namespace treering::api
