// Ranks as threads of the test: each runs `body` with its own communicator.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "treering/treering.hpp"

inline void run_ranks(int size, const std::function<void(tr::Communicator&)>& body) {
  auto comms = tr::Communicator::in_process(size);
  ASSERT_TRUE(comms.ok()) << comms.error().message;
  std::vector<std::thread> threads;
  for (tr::Communicator& comm : comms.value()) threads.emplace_back([&] { body(comm); });
  for (std::thread& thread : threads) thread.join();
}

#define EXPECT_OK(expr)                                            \
  do {                                                             \
    if (const tr::Status tr_status = (expr); !tr_status.ok()) {    \
      ADD_FAILURE() << #expr << ": " << tr_status.error().message; \
    }                                                              \
  } while (0)
