// What a function that makes a communicator ends with.
#pragma once

#include <memory>
#include <utility>

#include "api/comm_table.hpp"

namespace treering::api {

// A handle for it, or why there is none.
inline Status hand_out(Result<std::shared_ptr<Communicator>> made, tr_comm_t* comm) {
  if (!made.ok()) return made.status();
  *comm = add_comm(std::move(made).value());
  return *comm != nullptr ? Status{} : unsupported("too many communicators in this process");
}

}  // namespace treering::api
