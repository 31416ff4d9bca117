// What goes wrong with copies by copy engines ends in bounded time, on every rank, with words that
// name it: a stream's wait has no end of its own.
#include <algorithm>
#include <chrono>
#include <thread>
#include <unistd.h>

#include "cuda/copies.hpp"
#include "cudasim/control.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Killed ranks are processes, which must be forked before this one touches CUDA: so these tests
// come first.
std::string gather_until_failure(tr_comm_t comm, int rank, int size, int victim, bool on_stream) {
  constexpr std::uint64_t kCount = 20'000;
  const DeviceWindow in(comm, kCount);
  const DeviceWindow out(comm, kCount * static_cast<std::uint64_t>(size));
  if (!in.wrong().empty() || !out.wrong().empty()) return in.wrong() + out.wrong();
  const UserStream stream;
  for (int i = 0;; ++i) {
    if (rank == victim && i == 20) {
      usleep(20'000);  // the others wait
      ::kill(::getpid(), SIGKILL);
    }
    const Clock::time_point start = Clock::now();
    tr_result_t r = tr_all_gather(in.get(), out.get(), kCount, TR_UINT8, comm,
                                  on_stream ? stream.get() : nullptr);
    if (r == TR_SUCCESS && on_stream) r = tr_stream_synchronize(stream.get());
    if (r == TR_SUCCESS) continue;
    const std::string text = tr_get_last_error();
    if (r != TR_REMOTE_ERROR) return "failed otherwise: " + text;
    if (text.find("rank " + std::to_string(victim)) == std::string::npos)
      return "does not name the dead rank: " + text;
    if (seconds_since(start) > 5) return "took too long";
    if (tr_all_gather(in.get(), out.get(), kCount, TR_UINT8, comm, stream.get()) != r)
      return "the next call did not fail";
    return {};
  }
}

TEST(CopiesAKilledRank, IsNamedByTheOthers) {
  const Env by_copies("TR_CUDA_COPY_ENGINE", "2");
  const Env quiet("TR_LOG", "off");
  for (const int n : {2, 4}) {
    for (const bool on_stream : {false, true}) {
      const int victim = n / 2;
      EXPECT_EQ(run_ranks(
                    Mode::kProcesses, n,
                    [&](tr_comm_t comm, int rank, int size) {
                      return gather_until_failure(comm, rank, size, victim, on_stream);
                    },
                    30),
                "rank " + std::to_string(victim) + ": died of signal 9\n")
          << n << (on_stream ? " ranks, on a stream" : " ranks");
    }
  }
}

class CopiesFail : public CopiesOf {
 protected:
  Env by_copies_{"TR_CUDA_COPY_ENGINE", "2"};
  Env quiet_{"TR_LOG", "off"};
};

TEST_F(CopiesFail, AtTheDeadlineWhereARankNeverCalls) {
  const Env timeout("TR_TIMEOUT_S", "0.3");
  make(3, 3000);
  each([&](int r) {
    if (r == 1) return;
    const Clock::time_point start = Clock::now();
    const Answer a = all_gather(r, 1000, nullptr);
    EXPECT_EQ(a.code, TR_TIMEOUT) << a;
    EXPECT_TRUE(a.says("waited in vain for rank 1 to begin the call")) << a;
    EXPECT_GE(seconds_since(start), 0.25);
    EXPECT_LE(seconds_since(start), 3);
    EXPECT_EQ(all_gather(r, 1000, nullptr).code, TR_TIMEOUT);
  });
}

// The stream ends by itself, whoever waits for it, also if calls are queued behind the first.
TEST_F(CopiesFail, AtTheDeadlineOnAStreamThatNobodyWatches) {
  const Env timeout("TR_TIMEOUT_S", "0.3");
  make(2, 2000);
  const UserStream stream;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(all_gather(0, 1000, stream.get()).code, TR_SUCCESS);
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(cudaStreamSynchronize(stream.cuda()), cudaSuccess);
  EXPECT_LE(seconds_since(start), 3);
  tr_result_t error = TR_SUCCESS;
  EXPECT_TR(tr_comm_get_async_error(comm(0), &error));
  EXPECT_EQ(error, TR_TIMEOUT);
  const Answer a = answer(tr_stream_synchronize(stream.get()));
  EXPECT_EQ(a.code, TR_TIMEOUT) << a;
  EXPECT_TRUE(a.says("rank 1")) << a;
}

// A rank whose copies are let go publishes that it is ready and done: the others must not take that
// for a success.
TEST_F(CopiesFail, OfARankThatWasLetGo) {
  const Env timeout("TR_TIMEOUT_S", "0.3");
  for (const bool on_stream : {false, true}) {
    make(2, 2000);
    EXPECT_EQ(all_gather(0, 1000, nullptr).code, TR_TIMEOUT);
    const UserStream stream;
    Answer other = all_gather(1, 1000, on_stream ? stream.get() : nullptr);
    if (other.code == TR_SUCCESS && on_stream) other = answer(tr_stream_synchronize(stream.get()));
    EXPECT_EQ(other.code, TR_TIMEOUT) << other;
    EXPECT_TRUE(other.says("rank 0 failed")) << other;
  }
}

TEST_F(CopiesFail, AtTheDeadlineWhenTheCommunicatorIsDestroyed) {
  const Env timeout("TR_TIMEOUT_S", "0.3");
  make(2, 2000);
  const UserStream stream;
  EXPECT_EQ(all_gather(0, 1000, stream.get()).code, TR_SUCCESS);
  const Clock::time_point start = Clock::now();
  destroy();
  EXPECT_EQ(cudaStreamQuery(stream.cuda()), cudaSuccess);
  EXPECT_LE(seconds_since(start), 3);
}

TEST_F(CopiesFail, AtTheDeadlineInAGraph) {
  const Env timeout("TR_TIMEOUT_S", "0.3");
  make(2, 2000);
  const UserStream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream.cuda(), cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(all_gather(0, 1000, stream.get()).code, TR_SUCCESS);
  ASSERT_EQ(cudaStreamEndCapture(stream.cuda(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec, stream.cuda()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream.cuda()), cudaSuccess);
  tr_result_t error = TR_SUCCESS;
  EXPECT_TR(tr_comm_get_async_error(comm(0), &error));
  EXPECT_EQ(error, TR_TIMEOUT);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CopiesFail, WhenSomebodyAborts) {
  for (const int who : {0, 1}) {  // the rank that waits, from another thread; the other rank
    for (const bool on_stream : {false, true}) {
      make(2, 2000);  // the deadline is ten minutes
      const Clock::time_point start = Clock::now();
      std::thread waiter([&] {
        const UserStream stream;
        Answer a = all_gather(0, 1000, on_stream ? stream.get() : nullptr);
        if (a.code == TR_SUCCESS && on_stream) a = answer(tr_stream_synchronize(stream.get()));
        EXPECT_EQ(a.code, TR_ABORTED) << a;
        EXPECT_TRUE(a.says("rank " + std::to_string(who))) << a;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_TR(tr_comm_abort(comm(who)));
      waiter.join();
      EXPECT_LE(seconds_since(start), 5);
    }
  }
}

TEST_F(CopiesFail, WhereBuffersLieAtDifferentPlaces) {
  for (const bool in_another_window : {false, true}) {
    for (const bool on_stream : {false, true}) {
      make(3, 4000);
      const Clock::time_point start = Clock::now();
      each([&](int r) {
        DeviceWindow& from = r == 2 && in_another_window ? out(r) : in(r);
        DeviceWindow& to = r == 2 && in_another_window ? in(r) : out(r);
        std::uint8_t* const src = from.get() + (r == 2 && !in_another_window ? 64 : 0);
        const UserStream stream;
        Answer a = answer(tr_all_gather(src, to.get(), 1000, TR_UINT8, comm(r),
                                        on_stream ? stream.get() : nullptr));
        if (a.code == TR_SUCCESS && on_stream) a = answer(tr_stream_synchronize(stream.get()));
        EXPECT_EQ(a.code, TR_MISMATCH) << a;
        // Of those that have called so far.
        EXPECT_TRUE(a.says("window 0, byte 0; rank 2: window ")) << a;
        EXPECT_TRUE(a.says(in_another_window ? "window 1, byte 0: " : "window 0, byte 64: ")) << a;
      });
      EXPECT_LE(seconds_since(start), 5);  // not at the deadline of ten minutes
    }
  }
}

// What a failed call leaves in its own receive buffer is not said; elsewhere it leaves nothing.
TEST_F(CopiesFail, WhereCallsDiffer) {
  make(2, 4000);
  each([&](int r) {
    in(r).fill(9);
    out(r).fill(7);
    const std::uint64_t count = r == 0 ? 1000 : 1001;
    const Answer a = all_gather(r, count, nullptr);
    EXPECT_EQ(a.code, TR_MISMATCH) << a;
    EXPECT_TRUE(a.says("rank 0: all_gather of 1000 uint8; rank 1: all_gather of 1001 uint8")) << a;
    EXPECT_EQ(std::count(in(r).get(), in(r).get() + 4000, 9), 4000);
    EXPECT_EQ(std::count(out(r).get() + 2 * count, out(r).get() + 4000, 7), 4000 - 2 * count);
  });
}

// What would reach beyond a peer's window is refused before anything moves.
TEST_F(CopiesFail, BeyondAPeersWindow) {
  const Env timeout("TR_TIMEOUT_S", "0.5");
  Comms comms(2);
  ASSERT_TRUE(comms.ok());
  on_threads(2, [&](int r) {
    const DeviceWindow in(comms[r], r == 0 ? 4000 : 1000), out(comms[r], r == 0 ? 8000 : 2000);
    const std::uint64_t count = r == 0 ? 4000 : 1000;
    const Answer a = answer(tr_all_gather(in.get(), out.get(), count, TR_UINT8, comms[r], nullptr));
    EXPECT_EQ(a.code, TR_MISMATCH) << a;
    if (r == 0) {
      EXPECT_TRUE(a.says("window 0 of rank 1 has 1000 bytes") || a.says("all_gather of 1000 uint8"))
          << a;
    }
  });
}

// A driver's error in the middle of a call: what was enqueued before it ends all the same.
TEST_F(CopiesFail, WhereCudaRefusesACopy) {
  make(2, 4000);
  cudasim::fail_call("cudaMemcpyAsync", 2, cudaErrorUnknown);
  each([&](int r) {
    const Answer a = all_gather(r, 1000, nullptr);
    EXPECT_NE(a.code, TR_SUCCESS) << r;
    EXPECT_TRUE(a.says("cudaMemcpyAsync")) << a;
  });
}

}  // namespace
}  // namespace treering::test
