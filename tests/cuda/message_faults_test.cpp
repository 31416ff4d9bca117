// What goes wrong with tr_send and tr_recv on device memory ends in bounded time, with words that
// name the peer; and a failure on one engine is the other's too.
#include <chrono>
#include <thread>

#include "cuda/support.hpp"

namespace treering::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr std::uint64_t kLong = 3'000'000;  // bytes: more than all slots hold

class Failing : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(comms_.ok()) << comms_.made(0); }
  Env quiet_{"TR_LOG", "off"};
  Env timeout_{"TR_TIMEOUT_S", "0.4"};
  Comms comms_{3};
};

TEST_F(Failing, AReceiveThatIsNotSentNamesThePeerAtTheDeadline) {
  const DeviceArray<float> data(100, -7);
  const Clock::time_point start = Clock::now();
  const Answer a = answer(tr_recv(data.get(), 100, TR_FLOAT32, 2, comms_[0], nullptr));
  EXPECT_EQ(a.code, TR_TIMEOUT) << a;
  EXPECT_TRUE(a.says("message 0 from rank 2 (receive from rank 2 of 100 float32")) << a;
  EXPECT_GE(seconds_since(start), 0.35);
  EXPECT_LE(seconds_since(start), 2.5);
  EXPECT_EQ(data.wrong(-7), 0u);
}

TEST_F(Failing, ASendThatIsNotReceivedNamesThePeerAtTheDeadline) {
  const DeviceArray<std::uint8_t> data(kLong, 1);
  const Answer a = answer(tr_send(data.get(), kLong, TR_UINT8, 1, comms_[0], nullptr));
  EXPECT_EQ(a.code, TR_TIMEOUT) << a;
  EXPECT_TRUE(a.says("room for message")) << a;
  EXPECT_TRUE(a.says("send to rank 1 of 3000000 uint8")) << a;
}

// Of a group's peers, the one that does not come; the others' messages do not hide it.
TEST_F(Failing, OfManyPeersTheMissingOneIsNamed) {
  on_threads(2, [&](int r) {
    const DeviceArray<std::uint8_t> in(kLong, 1), a(kLong, 0), b(kLong, 0);
    EXPECT_TR(tr_group_start());
    EXPECT_TR(tr_send(in.get(), kLong, TR_UINT8, 1 - r, comms_[r], nullptr));
    EXPECT_TR(tr_recv(a.get(), kLong, TR_UINT8, 1 - r, comms_[r], nullptr));
    EXPECT_TR(tr_recv(b.get(), kLong, TR_UINT8, 2, comms_[r], nullptr));
    const Answer failed = answer(tr_group_end());
    EXPECT_EQ(failed.code, TR_TIMEOUT) << failed;
    EXPECT_TRUE(failed.says("from rank 2 (receive from rank 2 of 3000000 uint8")) << failed;
    EXPECT_EQ(a.wrong(1), 0u);
  });
}

TEST_F(Failing, OnAStreamTheSameAtSynchronize) {
  const DeviceArray<float> data(100, -7);
  const UserStream stream;
  EXPECT_TR(tr_recv(data.get(), 100, TR_FLOAT32, 1, comms_[0], stream.get()));
  const Answer a = answer(tr_stream_synchronize(stream.get()));
  EXPECT_EQ(a.code, TR_TIMEOUT) << a;
  EXPECT_TRUE(a.says("receive from rank 1 of 100 float32")) << a;
  tr_result_t error = TR_SUCCESS;
  EXPECT_TR(tr_comm_get_async_error(comms_[0], &error));
  EXPECT_EQ(error, TR_TIMEOUT);
  // The other ranks learn it when they wait, not at a deadline of their own.
  EXPECT_TR(tr_comm_set_option(comms_[1], TR_OPT_TIMEOUT_MS, 60'000));
  const Clock::time_point start = Clock::now();
  const Answer other = answer(tr_recv(data.get(), 100, TR_FLOAT32, 2, comms_[1], nullptr));
  EXPECT_EQ(other.code, TR_TIMEOUT) << other;
  EXPECT_TRUE(other.says("rank 0 failed: a kernel waited in vain")) << other;
  EXPECT_LE(seconds_since(start), 2);
}

TEST_F(Failing, AbortEndsIt) {
  EXPECT_TR(tr_comm_set_option(comms_[0], TR_OPT_TIMEOUT_MS, 60'000));
  const Clock::time_point start = Clock::now();
  std::thread waiter([&] {
    const DeviceArray<std::uint8_t> data(kLong, 1);
    const Answer a = answer(tr_send(data.get(), kLong, TR_UINT8, 1, comms_[0], nullptr));
    EXPECT_EQ(a.code, TR_ABORTED) << a;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TR(tr_comm_abort(comms_[0]));
  waiter.join();
  EXPECT_LE(seconds_since(start), 5);
}

// Both ends must have the same type and count.
struct Difference {
  const char* name;
  std::uint64_t sent, received;
  tr_type_t type;  // of the receive; float32 is sent
};
class Mismatch : public testing::TestWithParam<Difference> {};
INSTANTIATE_TEST_SUITE_P(Calls, Mismatch,
                         testing::Values(Difference{"Longer", 100, 101, TR_FLOAT32},
                                         Difference{"Shorter", 5000, 4999, TR_FLOAT32},
                                         Difference{"FarLonger", 3, 400'000, TR_FLOAT32},
                                         Difference{"FarShorter", 400'000, 3, TR_FLOAT32},
                                         Difference{"Type", 64, 64, TR_INT32},
                                         Difference{"SameBytes", 64, 32, TR_FLOAT64}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(Mismatch, IsFoundByTheReceiverAndReachesTheSender) {
  const Difference& d = GetParam();
  const Env quiet("TR_LOG", "off");
  const Env timeout("TR_TIMEOUT_S", "20");
  const Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  const Clock::time_point start = Clock::now();
  on_threads(2, [&](int r) {
    const DeviceArray<double> data(std::max(d.sent, d.received), 1);
    if (r == 0) {
      Answer a = answer(tr_send(data.get(), d.sent, TR_FLOAT32, 1, comms[0], nullptr));
      // It may have been buffered: then the next call says it.
      if (a.code == TR_SUCCESS)
        a = answer(tr_recv(data.get(), 1, TR_FLOAT32, 1, comms[0], nullptr));
      EXPECT_EQ(a.code, TR_MISMATCH) << a;
      EXPECT_TRUE(a.says("rank 1 failed")) << a;
    } else {
      const Answer a = answer(tr_recv(data.get(), d.received, d.type, 0, comms[1], nullptr));
      EXPECT_EQ(a.code, TR_MISMATCH) << a;
      EXPECT_TRUE(
          a.says("different operation, count or type: message 0 from rank 0 (receive from "
                 "rank 0 of " +
                 std::to_string(d.received)))
          << a;
    }
  });
  EXPECT_LE(seconds_since(start), 4);  // not the deadline
}

TEST(Arguments, AreCheckedAsOnTheHost) {
  const Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  const DeviceArray<float> device(16, 1);
  std::vector<float> host(16, 1);
  const UserStream cuda_stream;
  Answer a = answer(tr_send(device.get(), 16, TR_FLOAT32, 2, comms[0], nullptr));
  EXPECT_EQ(a.code, TR_INVALID_ARGUMENT) << a;
  EXPECT_TRUE(a.says("peer is 2")) << a;
  a = answer(tr_send(device.get(), 16, TR_FLOAT32, 0, comms[0], nullptr));
  EXPECT_EQ(a.code, TR_INVALID_USAGE) << a;  // to itself, outside of a group
  a = answer(
      tr_recv(reinterpret_cast<std::byte*>(device.get()) + 1, 4, TR_FLOAT32, 1, comms[0], nullptr));
  EXPECT_EQ(a.code, TR_INVALID_ARGUMENT) << a;
  a = answer(tr_send(host.data(), 16, TR_FLOAT32, 1, comms[0], cuda_stream.get()));
  EXPECT_EQ(a.code, TR_INVALID_ARGUMENT) << a;
  EXPECT_TRUE(a.says("host memory and the stream is a CUDA stream")) << a;
  // In a group the same, and nothing of it is issued.
  EXPECT_TR(tr_group_start());
  EXPECT_TR(tr_send(device.get(), 16, TR_FLOAT32, 1, comms[0], nullptr));
  EXPECT_TR(tr_recv(host.data(), 16, TR_FLOAT32, 1, comms[0], cuda_stream.get()));
  EXPECT_EQ(answer(tr_group_end()).code, TR_INVALID_ARGUMENT);
  // Nothing, of either kind of memory, is no message.
  EXPECT_TR(tr_send(device.get(), 0, TR_FLOAT32, 1, comms[0], cuda_stream.get()));
  EXPECT_TR(tr_recv(nullptr, 0, TR_FLOAT32, 1, comms[0], nullptr));
  // All as before.
  on_threads(2, [&](int r) {
    const DeviceArray<float> data(16, static_cast<float>(r));
    if (r == 0) {
      EXPECT_TR(tr_send(data.get(), 16, TR_FLOAT32, 1, comms[0], nullptr));
    } else {
      EXPECT_TR(tr_recv(data.get(), 16, TR_FLOAT32, 0, comms[1], nullptr));
      EXPECT_EQ(data.wrong(0), 0u);
    }
  });
}

// What a kernel on a stream reported, nobody has asked for yet: the next call on host memory is
// refused all the same, and so is the next one on the device after a failure on the host.
TEST(Failure, IsBothEngines) {
  const Env quiet("TR_LOG", "off");
  const Env timeout("TR_TIMEOUT_S", "0.3");
  for (const bool in_group : {false, true}) {
    const Comms comms(2);
    ASSERT_TRUE(comms.ok()) << comms.made(0);
    const DeviceArray<float> data(16, 1);
    const UserStream stream;
    float x = 1;
    EXPECT_TR(tr_recv(data.get(), 16, TR_FLOAT32, 1, comms[0], stream.get()));
    EXPECT_EQ(cudaStreamSynchronize(stream.cuda()), cudaSuccess);
    if (in_group) EXPECT_TR(tr_group_start());
    Answer a = answer(tr_all_reduce(&x, &x, 1, TR_FLOAT32, TR_SUM, comms[0], nullptr));
    if (in_group) a = answer(tr_group_end());
    EXPECT_EQ(a.code, TR_TIMEOUT) << a;
    EXPECT_TRUE(a.says("receive from rank 1 of 16 float32")) << a;
    // It has failed the communicator: the other rank's host call learns it soon.
    EXPECT_TR(tr_comm_set_option(comms[1], TR_OPT_TIMEOUT_MS, 60'000));
    a = answer(tr_all_reduce(&x, &x, 1, TR_FLOAT32, TR_SUM, comms[1], nullptr));
    EXPECT_EQ(a.code, TR_TIMEOUT) << a;
    EXPECT_TRUE(a.says("rank 0 failed: a kernel waited in vain")) << a;
    a = answer(tr_send(data.get(), 16, TR_FLOAT32, 0, comms[1], stream.get()));
    EXPECT_EQ(a.code, TR_TIMEOUT) << a;
  }
}

// A failure on the host ends the kernels that wait on a stream.
TEST(Failure, OnTheHostEndsTheKernels) {
  const Env quiet("TR_LOG", "off");
  const Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  const DeviceArray<float> data(16, 1);
  const UserStream stream;
  EXPECT_TR(tr_recv(data.get(), 16, TR_FLOAT32, 1, comms[0], stream.get()));  // for ten minutes
  EXPECT_TR(tr_comm_set_option(comms[0], TR_OPT_TIMEOUT_MS, 200));
  float x = 1;
  const Clock::time_point start = Clock::now();
  Answer a = answer(tr_all_reduce(&x, &x, 1, TR_FLOAT32, TR_SUM, comms[0], nullptr));
  EXPECT_EQ(a.code, TR_TIMEOUT) << a;
  EXPECT_EQ(cudaStreamSynchronize(stream.cuda()), cudaSuccess);
  EXPECT_LE(seconds_since(start), 3);
  const Answer synchronized = answer(tr_stream_synchronize(stream.get()));
  EXPECT_EQ(synchronized.code, TR_TIMEOUT) << synchronized;
  EXPECT_EQ(synchronized.text, a.text);
}

}  // namespace
}  // namespace treering::test
