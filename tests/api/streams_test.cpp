// Streams and events: calls return at once, order is kept, many are in flight.
#include <chrono>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "support/ranks.hpp"

namespace treering::test {
namespace {

#define RETURN_IF_FAILED(call)                                                      \
  do {                                                                              \
    if (const tr_result_t r_ = (call); r_ != TR_SUCCESS) return failure(#call, r_); \
  } while (0)

class Streams : public testing::TestWithParam<Mode> {
 protected:
  void expect_fine(int n, const RankBody& body) {
    EXPECT_EQ(run_ranks(GetParam(), n, body, 60), "");
  }
};

// A chain of dependent operations and many independent ones, mixed with blocking calls.
TEST_P(Streams, OrderWhereBuffersMeet) {
  expect_fine(3, [](tr_comm_t comm, int rank, int size) -> std::string {
    tr_stream_t stream;
    RETURN_IF_FAILED(tr_stream_create(&stream));
    for (const std::size_t count : {std::size_t{1}, std::size_t{70'000}}) {
      std::vector<std::int64_t> a(count, rank + 1), b(count), c(count);
      std::vector<std::vector<std::int64_t>> apart(8, std::vector<std::int64_t>(count, rank));
      RETURN_IF_FAILED(
          tr_all_reduce(a.data(), b.data(), count, TR_INT64, TR_SUM, comm, stream));  // 6
      RETURN_IF_FAILED(
          tr_all_reduce(b.data(), c.data(), count, TR_INT64, TR_SUM, comm, stream));  // 18
      for (auto& v : apart)
        RETURN_IF_FAILED(tr_all_reduce(v.data(), v.data(), count, TR_INT64, TR_MAX, comm, stream));
      RETURN_IF_FAILED(
          tr_all_reduce(c.data(), b.data(), count, TR_INT64, TR_MAX, comm, stream));  // 18
      std::int64_t one = 1, all = 0;
      RETURN_IF_FAILED(tr_all_reduce(&one, &all, 1, TR_INT64, TR_SUM, comm, nullptr));
      if (all != size) return "a blocking call among stream calls";
      RETURN_IF_FAILED(tr_stream_synchronize(stream));
      for (std::size_t i = 0; i < count; ++i) {
        if (b[i] != 18 || c[i] != 18)
          return "element " + std::to_string(i) + ": " + std::to_string(b[i]);
      }
      for (const auto& v : apart) {
        if (v != std::vector<std::int64_t>(count, size - 1)) return "independent operations";
      }
    }
    RETURN_IF_FAILED(tr_stream_destroy(stream));
    return {};
  });
}

TEST_P(Streams, CallsReturnBeforePeersCome) {
  expect_fine(2, [](tr_comm_t comm, int rank, int) -> std::string {
    tr_stream_t stream;
    RETURN_IF_FAILED(tr_stream_create(&stream));
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(150));
    float x = 1, y = 0;
    RETURN_IF_FAILED(tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, stream));
    int done = -1;
    RETURN_IF_FAILED(tr_stream_query(stream, &done));
    if (rank == 0 && done != 0) return "done although the peer has not called";
    RETURN_IF_FAILED(tr_stream_synchronize(stream));
    RETURN_IF_FAILED(tr_stream_query(stream, &done));
    if (done != 1 || y != 2) return "not done after synchronize";
    RETURN_IF_FAILED(tr_stream_destroy(stream));
    return {};
  });
}

TEST_P(Streams, EventsOrderTwoStreams) {
  expect_fine(2, [](tr_comm_t comm, int rank, int) -> std::string {
    tr_comm_t other = nullptr;
    RETURN_IF_FAILED(tr_comm_split(comm, 0, rank, &other));
    tr_stream_t first, second;
    tr_event_t event;
    RETURN_IF_FAILED(tr_stream_create(&first));
    RETURN_IF_FAILED(tr_stream_create(&second));
    RETURN_IF_FAILED(tr_event_create(&event));
    std::vector<std::int32_t> a(200'000, 1), b(a.size()), c(a.size());
    for (int turn = 0; turn < 5; ++turn) {
      RETURN_IF_FAILED(tr_all_reduce(a.data(), b.data(), a.size(), TR_INT32, TR_SUM, comm, first));
      RETURN_IF_FAILED(tr_event_record(event, first));
      RETURN_IF_FAILED(tr_stream_wait_event(second, event));
      RETURN_IF_FAILED(
          tr_all_reduce(b.data(), c.data(), a.size(), TR_INT32, TR_SUM, other, second));
      RETURN_IF_FAILED(tr_stream_synchronize(second));
      for (std::size_t i = 0; i < c.size(); ++i) {
        if (c[i] != 4) return "the second stream did not wait";
        b[i] = c[i] = 0;
      }
    }
    RETURN_IF_FAILED(tr_event_synchronize(event));
    int done = 0;
    RETURN_IF_FAILED(tr_event_query(event, &done));
    if (done != 1) return "event not done";
    RETURN_IF_FAILED(tr_event_destroy(event));
    RETURN_IF_FAILED(tr_stream_destroy(first));
    RETURN_IF_FAILED(tr_stream_destroy(second));
    RETURN_IF_FAILED(tr_comm_destroy(other));
    return {};
  });
}

// H14: two communicators in opposite order on two ranks; on two streams both finish.
TEST_P(Streams, OppositeOrderOnTwoCommunicators) {
  expect_fine(2, [](tr_comm_t comm, int rank, int) -> std::string {
    tr_comm_t other = nullptr;
    RETURN_IF_FAILED(tr_comm_split(comm, 0, rank, &other));
    tr_stream_t s[2];
    for (tr_stream_t& x : s) RETURN_IF_FAILED(tr_stream_create(&x));
    std::vector<float> a(300'000, 1), b(a.size()), c(a.size());
    tr_comm_t comms[2] = {comm, other};
    float* outs[2] = {b.data(), c.data()};
    for (int i = 0; i < 2; ++i) {
      const int which = rank == 0 ? i : 1 - i;
      RETURN_IF_FAILED(tr_all_reduce(a.data(), outs[which], a.size(), TR_FLOAT32, TR_SUM,
                                     comms[which], s[which]));
    }
    for (tr_stream_t x : s) RETURN_IF_FAILED(tr_stream_synchronize(x));
    if (b != std::vector<float>(a.size(), 2) || c != b) return "wrong sums";
    for (tr_stream_t x : s) RETURN_IF_FAILED(tr_stream_destroy(x));
    RETURN_IF_FAILED(tr_comm_destroy(other));
    return {};
  });
}

// An error of an operation on a stream comes out at synchronize, once, and stays with the
// communicator.
TEST_P(Streams, ErrorsComeOutAtSynchronize) {
  expect_fine(2, [](tr_comm_t comm, int rank, int) -> std::string {
    tr_stream_t stream;
    RETURN_IF_FAILED(tr_stream_create(&stream));
    float x[2] = {1, 1}, y[2];
    RETURN_IF_FAILED(tr_all_reduce(x, y, 1 + rank, TR_FLOAT32, TR_SUM, comm, stream));
    if (const tr_result_t r = tr_stream_synchronize(stream); r != TR_MISMATCH)
      return failure("synchronize", r);
    if (tr_barrier(comm, nullptr) != TR_MISMATCH) return "the communicator forgot";
    if (tr_all_reduce(x, y, 1, TR_FLOAT32, TR_SUM, comm, stream) != TR_MISMATCH)
      return "a stream call was taken";
    RETURN_IF_FAILED(tr_stream_destroy(stream));
    return {};
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Streams, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& mode) { return std::string(mode_name(mode.param)); });

}  // namespace
}  // namespace treering::test
