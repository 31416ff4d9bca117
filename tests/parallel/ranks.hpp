// Ranks of the parallelism layer, as threads of this process.
#pragma once

#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "treering/parallel/comm.hpp"

namespace partest {

// Runs `body` on `size` ranks. A rank's failed EXPECTs count as they would anywhere.
inline void on_ranks(int size, const std::function<void(std::unique_ptr<tr::par::Comm>)>& body) {
  ::setenv("TR_TIMEOUT_S", "60", 0);  // a hang says what it waited for before the test's limit
  auto made = tr::par::make_threads_comms(size);
  ASSERT_TRUE(made) << made.error().message;
  std::vector<std::thread> threads;
  for (std::unique_ptr<tr::par::Comm>& comm : made.value()) {
    threads.emplace_back([&body, mine = std::move(comm)]() mutable { body(std::move(mine)); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace partest
