// What goes wrong on device memory ends in bounded time, on every rank, with words that name it.
#include <chrono>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "cuda/support.hpp"
#include "cudasim/control.hpp"

namespace treering::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void combine_nothing(void*, const void*, size_t, tr_type_t, void*) {}

// All protocols: those without a tail wait elsewhere.
class Wait : public testing::TestWithParam<const char*> {
 protected:
  Env protocol_{"TR_PROTOCOL", GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Protocols, Wait, testing::Values("Simple", "LL", "LL128"),
                         [](const auto& param) { return std::string(param.param); });

// Short vectors and such that every thread of the block waits several times: the deadline is one.
TEST_P(Wait, ForARankThatNeverCallsEndsAtTheDeadline) {
  const Env timeout("TR_TIMEOUT_S", "0.3");
  for (const std::uint64_t count : {8, 20000}) {
    Comms comms(3);
    ASSERT_TRUE(comms.ok()) << comms.made(0);
    on_threads(2, [&](int r) {
      DeviceArray<float> in(count, 1), out(count, -7);
      const Clock::time_point start = Clock::now();
      const Answer a =
          answer(tr_all_reduce(in.get(), out.get(), count, TR_FLOAT32, TR_SUM, comms[r], nullptr));
      EXPECT_EQ(a.code, TR_TIMEOUT) << "rank " << r << ", " << count << ": " << a;
      EXPECT_TRUE(a.says("rank 2")) << a;  // who
      EXPECT_TRUE(a.says("message 0")) << a;
      EXPECT_TRUE(a.says("recv") || a.says("reduce")) << a;  // the step
      EXPECT_GE(seconds_since(start), 0.25);
      EXPECT_LE(seconds_since(start), 2.5) << count;
      // The communicator is failed.
      const Answer next =
          answer(tr_all_reduce(in.get(), out.get(), count, TR_FLOAT32, TR_SUM, comms[r], nullptr));
      EXPECT_EQ(next.code, TR_TIMEOUT) << next;
      tr_result_t error = TR_SUCCESS;
      EXPECT_TR(tr_comm_get_async_error(comms[r], &error));
      EXPECT_EQ(error, TR_TIMEOUT);
    });
  }
}

TEST_P(Wait, OnACallersStreamEndsAtTheDeadlineToo) {
  const Env timeout("TR_TIMEOUT_S", "0.3");
  Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  DeviceArray<float> data(100, 1);
  const UserStream stream;
  EXPECT_TR(tr_all_reduce(data.get(), data.get(), 100, TR_FLOAT32, TR_SUM, comms[0], stream.get()));
  const Answer a = answer(tr_stream_synchronize(stream.get()));
  EXPECT_EQ(a.code, TR_TIMEOUT) << a;
  EXPECT_TRUE(a.says("rank 1")) << a;
  tr_result_t error = TR_SUCCESS;
  EXPECT_TR(tr_comm_get_async_error(comms[0], &error));
  EXPECT_EQ(error, TR_TIMEOUT);
  // The next call here fails, and tells the other rank, which need not wait for a deadline. (Its
  // first call has all it needs: rank 0's message came before rank 0 gave up.)
  EXPECT_EQ(answer(tr_barrier(comms[0], stream.get())).code, TR_TIMEOUT);
  DeviceArray<float> theirs(100, 5);
  Answer other =
      answer(tr_all_reduce(theirs.get(), theirs.get(), 100, TR_FLOAT32, TR_SUM, comms[1], nullptr));
  if (other.code == TR_SUCCESS) {
    EXPECT_EQ(theirs.wrong(6), 0u);
    other = answer(tr_barrier(comms[1], stream.get()));
    if (other.code == TR_SUCCESS)
      other = answer(
          tr_all_reduce(theirs.get(), theirs.get(), 100, TR_FLOAT32, TR_SUM, comms[1], nullptr));
  }
  EXPECT_EQ(other.code, TR_TIMEOUT) << other;
  EXPECT_TRUE(other.says("rank 0 failed")) << other;
}

TEST_P(Wait, IsEndedByAbortFromAnotherThread) {
  for (const bool on_stream : {false, true}) {
    const Comms comms(2);  // the deadline is ten minutes
    ASSERT_TRUE(comms.ok()) << comms.made(0);
    const Clock::time_point start = Clock::now();
    std::thread waiter([&] {
      const DeviceArray<float> data(3000, 1);
      const auto sum = [&](tr_stream_t stream) {
        return answer(
            tr_all_reduce(data.get(), data.get(), 3000, TR_FLOAT32, TR_SUM, comms[0], stream));
      };
      Answer a;
      if (on_stream) {
        const UserStream stream;
        a = sum(stream.get());
        if (a.code == TR_SUCCESS) a = answer(tr_stream_synchronize(stream.get()));
      } else {
        a = sum(nullptr);
      }
      EXPECT_EQ(a.code, TR_ABORTED) << a;
      EXPECT_TRUE(a.says("abort")) << a;
      EXPECT_EQ(sum(nullptr).code, TR_ABORTED);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_TR(tr_comm_abort(comms[0]));
    waiter.join();
    EXPECT_LE(seconds_since(start), 5);
  }
}

TEST_P(Wait, IsEndedByTheAbortOfAnotherRank) {
  Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  std::thread waiter([&] {
    DeviceArray<float> data(3000, 1);
    const Answer a =
        answer(tr_all_reduce(data.get(), data.get(), 3000, TR_FLOAT32, TR_SUM, comms[0], nullptr));
    EXPECT_EQ(a.code, TR_ABORTED) << a;
    EXPECT_TRUE(a.says("rank 1")) << a;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TR(tr_comm_abort(comms[1]));
  waiter.join();
}

// One call differs on rank 1. No rank may answer with success and wrong numbers.
struct Difference {
  const char* name;
  std::uint64_t count0, count1;
  tr_type_t type1;
  tr_op_t op1;
};
class Mismatch : public testing::TestWithParam<std::tuple<const char*, Difference>> {};
INSTANTIATE_TEST_SUITE_P(
    Calls, Mismatch,
    testing::Combine(testing::Values("Simple", "LL", "LL128", ""),
                     testing::Values(Difference{"LongerCount", 100, 200, TR_FLOAT32, TR_SUM},
                                     Difference{"ShorterCount", 5000, 4999, TR_FLOAT32, TR_SUM},
                                     Difference{"OtherProtocol", 8, 100000, TR_FLOAT32, TR_SUM},
                                     Difference{"Type", 64, 64, TR_INT32, TR_SUM},
                                     Difference{"Operator", 64, 64, TR_FLOAT32, TR_MAX})),
    [](const auto& param) {
      const std::string protocol = std::get<0>(param.param);
      return (protocol.empty() ? "Chosen" : protocol) + std::get<1>(param.param).name;
    });

TEST_P(Mismatch, IsAnErrorOnBothRanks) {
  const auto& [protocol, difference] = GetParam();
  const Env forced("TR_PROTOCOL", protocol);
  const Env timeout("TR_TIMEOUT_S", "5");
  Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  const Clock::time_point start = Clock::now();
  on_threads(2, [&](int r) {
    const std::uint64_t count = r == 0 ? difference.count0 : difference.count1;
    DeviceArray<float> in(count, 1), out(count, -7);
    const Answer a =
        answer(tr_all_reduce(in.get(), out.get(), count, r == 0 ? TR_FLOAT32 : difference.type1,
                             r == 0 ? TR_SUM : difference.op1, comms[r], nullptr));
    EXPECT_EQ(a.code, TR_MISMATCH) << "rank " << r << ": " << a;
    EXPECT_TRUE(a.says("rank 0: all_reduce of " + std::to_string(difference.count0))) << a;
    EXPECT_TRUE(a.says("rank 1: all_reduce of " + std::to_string(difference.count1))) << a;
  });
  EXPECT_LE(seconds_since(start), 3);  // not the deadline
}

TEST(Arguments, ThatDoNotFitChangeNothing) {
  Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  DeviceArray<float> device(16, 1);
  std::vector<float> host(16, 1);
  const UserStream cuda_stream;
  tr_stream_t host_stream = nullptr;
  EXPECT_TR(tr_stream_create(&host_stream));
  const auto all_reduce = [&](const void* in, void* out, tr_op_t op, tr_stream_t stream) {
    return answer(tr_all_reduce(in, out, 16, TR_FLOAT32, op, comms[0], stream));
  };

  Answer a = all_reduce(device.get(), host.data(), TR_SUM, nullptr);
  EXPECT_EQ(a.code, TR_INVALID_ARGUMENT) << a;
  EXPECT_TRUE(a.says("sendbuf is device memory and the other buffer is not")) << a;
  a = all_reduce(host.data(), device.get(), TR_SUM, nullptr);
  EXPECT_EQ(a.code, TR_INVALID_ARGUMENT) << a;
  EXPECT_TRUE(a.says("recvbuf is device memory and the other buffer is not")) << a;
  a = all_reduce(device.get(), device.get(), TR_SUM, host_stream);
  EXPECT_EQ(a.code, TR_INVALID_ARGUMENT) << a;
  EXPECT_TRUE(a.says("host stream; use tr_stream_from_cuda")) << a;
  a = all_reduce(host.data(), host.data(), TR_SUM, cuda_stream.get());
  EXPECT_EQ(a.code, TR_INVALID_ARGUMENT) << a;
  EXPECT_TRUE(a.says("host memory and the stream is a CUDA stream")) << a;

  tr_op_t op = 0;
  EXPECT_TR(tr_op_create(&op, combine_nothing, 1, nullptr));
  a = all_reduce(device.get(), device.get(), op, nullptr);
  EXPECT_EQ(a.code, TR_UNSUPPORTED) << a;
  EXPECT_TRUE(a.says("user-defined operator runs on host memory only")) << a;
  EXPECT_TR(tr_op_destroy(op));

  // In a group the same, and the rest of the group is not issued.
  EXPECT_TR(tr_group_start());
  EXPECT_TR(tr_all_reduce(device.get(), host.data(), 16, TR_FLOAT32, TR_SUM, comms[0], nullptr));
  a = answer(tr_group_end());
  EXPECT_EQ(a.code, TR_INVALID_ARGUMENT) << a;

  // All as before: both kinds of memory work.
  on_threads(2, [&](int r) {
    DeviceArray<float> data(16, static_cast<float>(r + 1));
    EXPECT_TR(tr_all_reduce(data.get(), data.get(), 16, TR_FLOAT32, TR_SUM, comms[r], nullptr));
    EXPECT_EQ(data.wrong(3), 0u);
    float x = static_cast<float>(r + 1);
    EXPECT_TR(tr_all_reduce(&x, &x, 1, TR_FLOAT32, TR_SUM, comms[r], nullptr));
    EXPECT_EQ(x, 3);
  });
  EXPECT_TR(tr_stream_destroy(host_stream));
}

TEST(Arguments, AForcedAlgorithmNeedsAKernel) {
  Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  DeviceArray<float> data(16, 1);
  EXPECT_TR(tr_comm_set_algorithm(comms[0], "all_reduce", "recursive_doubling"));
  const Answer a =
      answer(tr_all_reduce(data.get(), data.get(), 16, TR_FLOAT32, TR_SUM, comms[0], nullptr));
  EXPECT_EQ(a.code, TR_INVALID_ARGUMENT) << a;
  EXPECT_TRUE(a.says("\"recursive_doubling\" was forced, but there is no kernel for it")) << a;
  EXPECT_TRUE(a.says("there are: ring, tree, one_shot, two_shot, window, window_one_shot")) << a;
}

TEST(Arguments, AnUnknownProtocolIsSaid) {
  const Env protocol("TR_PROTOCOL", "LL256");
  Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  DeviceArray<float> data(16, 1);
  const Answer a =
      answer(tr_all_reduce(data.get(), data.get(), 16, TR_FLOAT32, TR_SUM, comms[0], nullptr));
  EXPECT_EQ(a.code, TR_INVALID_ARGUMENT) << a;
  EXPECT_TRUE(a.says("\"LL256\"") && a.says("Simple, LL, LL128")) << a;
}

// A GPU that one rank cannot use leaves the communicator without links: the host engine must not
// touch what is the GPU's, in a repeated call neither.
TEST(Arguments, WithoutGpuLinksDeviceMemoryIsRefused) {
  const Env quiet("TR_LOG", "off");
  cudasim::fail_call("cudaDeviceGetPCIBusId", 1, cudaErrorUnknown);
  const Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  const DeviceArray<float> device(16, 1);
  std::vector<float> host(16, 1);
  const auto all_reduce = [&](int r, const void* in, void* out) {
    return answer(tr_all_reduce(in, out, 16, TR_FLOAT32, TR_SUM, comms[r], nullptr));
  };
  const auto on_host = [&] {
    on_threads(2, [&](int r) {
      std::vector<float> x(16, 1);
      EXPECT_EQ(all_reduce(r, x.data(), x.data()).code, TR_SUCCESS);
      EXPECT_EQ(x, std::vector<float>(16, 2));
    });
  };
  for (int i = 0; i < 2; ++i) {
    for (int r = 0; r < 2; ++r) {
      Answer a = all_reduce(r, device.get(), device.get());
      EXPECT_EQ(a.code, TR_UNSUPPORTED) << a;
      EXPECT_TRUE(a.says("sendbuf is device memory, but this communicator has no GPU links")) << a;
      a = all_reduce(r, host.data(), device.get());
      EXPECT_TRUE(a.says("recvbuf is device memory, but this communicator has no GPU links")) << a;
      a = answer(tr_recv(device.get(), 16, TR_FLOAT32, 1 - r, comms[r], nullptr));
      EXPECT_EQ(a.code, TR_UNSUPPORTED) << a;
    }
    on_host();
  }
  EXPECT_EQ(device.wrong(1), 0u);
}

TEST(Options, TheTimeoutIsTheKernelsToo) {
  const Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  EXPECT_TR(tr_comm_set_option(comms[0], TR_OPT_TIMEOUT_MS, 300));
  const DeviceArray<float> data(16, 1);
  const Clock::time_point start = Clock::now();
  std::thread rescue([&] {  // or the test lasts ten minutes
    std::this_thread::sleep_for(std::chrono::seconds(4));
    (void)tr_comm_abort(comms[1]);
  });
  const Answer a =
      answer(tr_all_reduce(data.get(), data.get(), 16, TR_FLOAT32, TR_SUM, comms[0], nullptr));
  EXPECT_EQ(a.code, TR_TIMEOUT) << a;
  EXPECT_LE(seconds_since(start), 2);
  rescue.join();
}

// In processes, since the environment is the process's.
TEST(Options, RanksMustAgreeOnCuda) {
  const Env timeout("TR_INIT_TIMEOUT_S", "5");
  tr_unique_id_t id;
  ASSERT_EQ(tr_get_unique_id(&id), TR_SUCCESS);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TR_CUDA", "0", 1);
    tr_comm_t comm = nullptr;
    ::_exit(tr_comm_init_rank(&comm, 2, id, 1));
  }
  tr_comm_t comm = nullptr;
  const Answer a = answer(tr_comm_init_rank(&comm, 2, id, 0));
  EXPECT_EQ(a.code, TR_MISMATCH) << a;
  EXPECT_TRUE(a.says("TR_CUDA 0")) << a;
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == TR_MISMATCH) << status;
}

}  // namespace
}  // namespace treering::test
