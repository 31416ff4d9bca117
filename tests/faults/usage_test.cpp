// Bad input and bad order: a clear error that says what is wrong; nothing moves, nothing is lost,
// nothing hangs.
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "support/ranks.hpp"

namespace treering::test {
namespace {

#define EXPECT_ERROR(code, words, call)                                        \
  do {                                                                         \
    EXPECT_EQ(call, code) << tr_get_last_error();                              \
    EXPECT_NE(std::string(tr_get_last_error()).find(words), std::string::npos) \
        << tr_get_last_error();                                                \
  } while (0)

class Usage : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(tr_comm_init_all(&comm_, 1), TR_SUCCESS) << tr_get_last_error();
  }
  void TearDown() override {
    // Whatever was refused before, the communicator still works.
    EXPECT_EQ(tr_all_reduce(in_, out_, 8, TR_FLOAT32, TR_SUM, comm_, nullptr), TR_SUCCESS);
    EXPECT_EQ(std::memcmp(in_, out_, sizeof in_), 0);
    EXPECT_EQ(tr_comm_destroy(comm_), TR_SUCCESS);
  }
  tr_comm_t comm_ = nullptr;
  float in_[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float out_[8] = {};
};

TEST_F(Usage, NullPointers) {
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "sendbuf is NULL",
               tr_all_reduce(nullptr, out_, 1, TR_FLOAT32, TR_SUM, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "recvbuf is NULL",
               tr_all_reduce(in_, nullptr, 1, TR_FLOAT32, TR_SUM, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "communicator is NULL",
               tr_all_reduce(in_, out_, 1, TR_FLOAT32, TR_SUM, nullptr, nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "recvcounts is NULL",
               tr_all_gather_v(in_, out_, nullptr, nullptr, TR_FLOAT32, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "id is NULL", tr_get_unique_id(nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "comm is NULL",
               tr_comm_init_rank(nullptr, 1, tr_unique_id_t{}, 0));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "stream is NULL", tr_stream_create(nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "combine is NULL",
               tr_op_create(reinterpret_cast<tr_op_t*>(out_), nullptr, 1, nullptr));
  EXPECT_EQ(tr_all_reduce(nullptr, nullptr, 0, TR_FLOAT32, TR_SUM, comm_, nullptr), TR_SUCCESS);
}

TEST_F(Usage, AbsurdCountsTypesOperatorsRoots) {
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "negative",
               tr_all_reduce(in_, out_, ~0ull, TR_FLOAT32, TR_SUM, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "negative",
               tr_all_gather(in_, out_, 1ull << 62, TR_UINT8, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "unknown type 99",
               tr_all_reduce(in_, out_, 1, static_cast<tr_type_t>(99), TR_SUM, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "unknown type -1",
               tr_all_reduce(in_, out_, 1, static_cast<tr_type_t>(-1), TR_SUM, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "operator 77",
               tr_all_reduce(in_, out_, 1, TR_FLOAT32, 77, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "root is 1",
               tr_broadcast(in_, out_, 1, TR_FLOAT32, 1, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "root is -1",
               tr_reduce(in_, out_, 1, TR_FLOAT32, TR_SUM, -1, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "peer is 5", tr_send(in_, 1, TR_FLOAT32, 5, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_USAGE, "group", tr_send(in_, 1, TR_FLOAT32, 0, comm_, nullptr));
  EXPECT_ERROR(
      TR_INVALID_ARGUMENT, "not aligned",
      tr_all_reduce(reinterpret_cast<char*>(in_) + 1, out_, 1, TR_FLOAT32, TR_SUM, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "overlap",
               tr_all_reduce(in_, in_ + 1, 4, TR_FLOAT32, TR_SUM, comm_, nullptr));
  EXPECT_ERROR(TR_UNSUPPORTED, "scan", tr_scan(in_, out_, 1, TR_FLOAT32, TR_AVG, comm_, nullptr));
  tr_op_t op;
  ASSERT_EQ(tr_op_create_premul_sum(&op, 2.0), TR_SUCCESS);
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "floating-point",
               tr_all_reduce(in_, out_, 1, TR_INT32, op, comm_, nullptr));
  EXPECT_EQ(tr_op_destroy(op), TR_SUCCESS);
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "destroyed operator",
               tr_all_reduce(in_, out_, 1, TR_FLOAT32, op, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_USAGE, "destroyed operator", tr_op_destroy(op));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "built-in", tr_op_destroy(TR_SUM));
}

TEST_F(Usage, ForcedAlgorithms) {
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "there are: auto, local",
               tr_comm_set_algorithm(comm_, "all_reduce", "rign"));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "all_reduce, reduce",
               tr_comm_set_algorithm(comm_, "allreduce", "ring"));
  EXPECT_EQ(tr_comm_set_algorithm(comm_, "all_reduce", "auto"), TR_SUCCESS);
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "0 or 1", tr_comm_set_option(comm_, TR_OPT_ORDERED, 2));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "positive", tr_comm_set_option(comm_, TR_OPT_TIMEOUT_MS, -1));
  EXPECT_EQ(tr_comm_set_option(comm_, TR_OPT_TIMEOUT_MS, 0), TR_SUCCESS);  // never
}

TEST_F(Usage, Groups) {
  EXPECT_ERROR(TR_INVALID_USAGE, "without tr_group_start", tr_group_end());
  // An error inside: nothing of the group is issued.
  out_[0] = -1;
  ASSERT_EQ(tr_group_start(), TR_SUCCESS);
  EXPECT_EQ(tr_all_reduce(in_, out_, 1, TR_FLOAT32, TR_SUM, comm_, nullptr), TR_SUCCESS);
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "root is 9",
               tr_broadcast(in_, out_, 1, TR_FLOAT32, 9, comm_, nullptr));
  EXPECT_ERROR(TR_INVALID_USAGE, "open group", tr_comm_destroy(comm_));
  tr_stream_t stream;
  ASSERT_EQ(tr_stream_create(&stream), TR_SUCCESS);
  EXPECT_ERROR(TR_INVALID_USAGE, "inside a group", tr_stream_synchronize(stream));
  EXPECT_ERROR(TR_INVALID_USAGE, "inside a group", tr_stream_destroy(stream));
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "root is 9", tr_group_end());
  EXPECT_EQ(tr_stream_destroy(stream), TR_SUCCESS);
  EXPECT_EQ(out_[0], -1);
}

TEST(Handles, DestroyedGarbageNull) {
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "NULL", tr_comm_destroy(nullptr));
  int stack = 0;
  EXPECT_ERROR(TR_INVALID_USAGE, "garbage", tr_comm_destroy(reinterpret_cast<tr_comm_t>(&stack)));
  EXPECT_ERROR(TR_INVALID_USAGE, "garbage",
               tr_barrier(reinterpret_cast<tr_comm_t>(0x7fffdeadbeefull), nullptr));
  tr_comm_t comm;
  ASSERT_EQ(tr_comm_init_all(&comm, 1), TR_SUCCESS);
  ASSERT_EQ(tr_comm_destroy(comm), TR_SUCCESS);
  int n = 0;
  EXPECT_ERROR(TR_INVALID_USAGE, "destroyed", tr_comm_destroy(comm));
  EXPECT_ERROR(TR_INVALID_USAGE, "destroyed", tr_comm_size(comm, &n));
  EXPECT_ERROR(TR_INVALID_USAGE, "destroyed", tr_barrier(comm, nullptr));
  EXPECT_ERROR(TR_INVALID_USAGE, "destroyed", tr_comm_abort(comm));
  tr_stream_t stream;
  ASSERT_EQ(tr_stream_create(&stream), TR_SUCCESS);
  ASSERT_EQ(tr_stream_destroy(stream), TR_SUCCESS);
  EXPECT_ERROR(TR_INVALID_USAGE, "stream", tr_stream_destroy(stream));
  tr_unique_id_t garbage;
  std::memset(&garbage, 0x5A, sizeof garbage);
  EXPECT_ERROR(TR_INVALID_ARGUMENT, "unique id", tr_comm_init_rank(&comm, 2, garbage, 0));
  EXPECT_EQ(comm, nullptr);
}

// Two threads on one communicator: one of them is told, nothing else happens.
TEST(Handles, TwoThreadsAtOnce) {
  tr_comm_t comms[2];
  ASSERT_EQ(tr_comm_init_all(comms, 2), TR_SUCCESS) << tr_get_last_error();
  std::atomic<bool> inside{false};
  std::thread first([&] {
    inside = true;
    float x = 1, y = 0;
    EXPECT_EQ(tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comms[0], nullptr), TR_SUCCESS);
    EXPECT_EQ(y, 3);
  });
  while (!inside) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  float x = 0;
  EXPECT_ERROR(TR_INVALID_USAGE, "another thread",
               tr_all_reduce(&x, &x, 1, TR_FLOAT32, TR_SUM, comms[0], nullptr));
  EXPECT_ERROR(TR_INVALID_USAGE, "another thread", tr_comm_destroy(comms[0]));
  float two = 2, sum = 0;
  EXPECT_EQ(tr_all_reduce(&two, &sum, 1, TR_FLOAT32, TR_SUM, comms[1], nullptr), TR_SUCCESS);
  first.join();
  EXPECT_EQ(tr_comm_destroy(comms[0]), TR_SUCCESS);
  EXPECT_EQ(tr_comm_destroy(comms[1]), TR_SUCCESS);
}

}  // namespace
}  // namespace treering::test
