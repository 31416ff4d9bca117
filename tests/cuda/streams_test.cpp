// Device collectives on callers' streams, in CUDA's order: with kernels and copies around them, on
// two streams, captured into graphs, in groups.
#include <cstring>

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx.cuh"
#include "cuda/support.hpp"

namespace treering::test {
namespace {

using cuda::launch;

constexpr int kRanks = 2;

// data[i] = data[i] * factor + add, after having kept everybody waiting.
__global__ void scale_late(float* data, std::uint64_t count, float factor, float add, int rounds) {
  for (int i = 0; i < rounds; ++i) cuda::spin_pause();
  for (std::uint64_t i = cuda::thread_id(); i < count; i += cuda::block_threads()) {
    data[i] = data[i] * factor + add;
  }
}

void scale(float* data, std::uint64_t count, float factor, float add, cudaStream_t stream,
           int rounds = 300) {
  EXPECT_EQ(launch(scale_late, 1, 64, 0, stream, data, count, factor, add, rounds), cudaSuccess);
}

// All protocols, by the tuner's own choice: LL, LL128, Simple.
constexpr std::uint64_t kCounts[] = {7, 500, 40000, 220000};

class Streams : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(comms_.ok()) << comms_.made(0); }
  Comms comms_{kRanks};
};

TEST_F(Streams, KernelsCopiesAndCollectivesKeepTheOrderOfTheStream) {
  on_threads(kRanks, [&](int r) {
    const UserStream stream;
    for (const std::uint64_t count : kCounts) {
      const DeviceArray<float> a(count, 0), b(count, -1);
      std::vector<float> start(count, static_cast<float>(r + 1)), end(count);
      const std::size_t bytes = count * sizeof(float);
      EXPECT_EQ(cudaMemcpyAsync(a.get(), start.data(), bytes, cudaMemcpyDefault, stream.cuda()),
                cudaSuccess);
      scale(a.get(), count, 2, 1, stream.cuda());  // 3, 5
      EXPECT_TR(tr_all_reduce(a.get(), b.get(), count, TR_FLOAT32, TR_SUM, comms_[r],
                              stream.get()));      // 8
      scale(b.get(), count, 1, 2, stream.cuda());  // 10
      EXPECT_TR(tr_broadcast(b.get(), a.get(), count, TR_FLOAT32, 1, comms_[r], stream.get()));
      scale(a.get(), count, static_cast<float>(r), 0, stream.cuda());  // 0, 10
      EXPECT_TR(
          tr_all_reduce(a.get(), a.get(), count, TR_FLOAT32, TR_MAX, comms_[r], stream.get()));
      EXPECT_EQ(cudaMemcpyAsync(end.data(), a.get(), bytes, cudaMemcpyDefault, stream.cuda()),
                cudaSuccess);
      // A call that returns before its end must not have read what the stream writes later.
      EXPECT_EQ(cudaMemsetAsync(a.get(), 0, bytes, stream.cuda()), cudaSuccess);
      EXPECT_TR(tr_stream_synchronize(stream.get()));
      int done = 0;
      EXPECT_TR(tr_stream_query(stream.get(), &done));
      EXPECT_EQ(done, 1);
      EXPECT_EQ(end, std::vector<float>(count, 10)) << "count " << count << ", rank " << r;
      EXPECT_EQ(b.wrong(10), 0u);
      EXPECT_EQ(a.wrong(0), 0u);
    }
  });
}

TEST_F(Streams, ACallReturnsBeforeItIsDone) {
  const UserStream stream;
  DeviceArray<float> data(100, 1);
  EXPECT_TR(tr_all_reduce(data.get(), data.get(), 100, TR_FLOAT32, TR_SUM, comms_[0],
                          stream.get()));  // rank 1 has not even called
  int done = 1;
  EXPECT_TR(tr_stream_query(stream.get(), &done));
  EXPECT_EQ(done, 0);
  DeviceArray<float> other(100, 2);
  EXPECT_TR(tr_all_reduce(other.get(), other.get(), 100, TR_FLOAT32, TR_SUM, comms_[1], nullptr));
  EXPECT_EQ(other.wrong(3), 0u);  // NULL: it blocked until the end
  EXPECT_TR(tr_stream_synchronize(stream.get()));
  EXPECT_EQ(data.wrong(3), 0u);
}

// The links serve one operation at a time: the library orders what the streams do not.
TEST_F(Streams, TwoOfThemOnOneCommunicatorTakeTurns) {
  on_threads(kRanks, [&](int r) {
    const UserStream a, b;
    constexpr int kRounds = 12;
    constexpr std::uint64_t kCount = 3000;
    std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
    for (int i = 0; i < kRounds; ++i) {
      arrays.push_back(std::make_unique<DeviceArray<float>>(kCount, static_cast<float>(r + i)));
    }
    for (int i = 0; i < kRounds; ++i) {
      const UserStream& stream = i % 3 == 1 ? b : a;
      float* const data = arrays[static_cast<std::size_t>(i)]->get();
      // Now one stream is late, now the other.
      scale(data, kCount, 1, 1, stream.cuda(), i % 4 * 200);
      EXPECT_TR(tr_all_reduce(data, data, i % 2 ? kCount : 50, TR_FLOAT32, TR_SUM, comms_[r],
                              stream.get()));
      if (i == 5) {
        float* const now = arrays[0]->get();  // and one without a stream in between
        EXPECT_TR(tr_barrier(comms_[r], b.get()));
        EXPECT_TR(tr_all_reduce(now, now, 0, TR_FLOAT32, TR_SUM, comms_[r], nullptr));
      }
    }
    EXPECT_TR(tr_stream_synchronize(a.get()));
    EXPECT_TR(tr_stream_synchronize(b.get()));
    for (int i = 0; i < kRounds; ++i) {
      const float* const data = arrays[static_cast<std::size_t>(i)]->get();
      const std::uint64_t summed = i % 2 ? kCount : 50;
      std::size_t wrong = 0;
      for (std::uint64_t k = 0; k < kCount; ++k) {
        wrong += data[k] != static_cast<float>(k < summed ? 2 * i + 3 : r + i + 1) ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0u) << "call " << i << ", rank " << r;
    }
  });
}

// A handle that is given out again is not the stream that it was.
TEST_F(Streams, OneThatIsDestroyedIsStillWaitedFor) {
  on_threads(kRanks, [&](int r) {
    DeviceArray<float> data(2000, static_cast<float>(r + 1));
    for (int i = 0; i < 6; ++i) {
      cudaStream_t cuda_stream = nullptr;
      tr_stream_t stream = nullptr;
      EXPECT_EQ(cudaStreamCreateWithFlags(&cuda_stream, cudaStreamNonBlocking), cudaSuccess);
      EXPECT_TR(tr_stream_from_cuda(&stream, cuda_stream));
      scale(data.get(), 0, 1, 0, cuda_stream, r == 0 ? 400 : 0);
      EXPECT_TR(tr_all_reduce(data.get(), data.get(), 2000, TR_FLOAT32, i % 2 ? TR_SUM : TR_MAX,
                              comms_[r], stream));
      EXPECT_EQ(cudaStreamDestroy(cuda_stream), cudaSuccess);  // its work goes on
    }
    DeviceArray<float> last(1, 1);
    EXPECT_TR(tr_all_reduce(last.get(), last.get(), 1, TR_FLOAT32, TR_SUM, comms_[r], nullptr));
    EXPECT_EQ(data.wrong(16), 0u);  // 2 2+2 4 8 8 16
  });
}

// CUDA's default stream waits for blocking streams, and is waited for.
TEST_F(Streams, TheDefaultStreamIsAStream) {
  // Ranks share the device's default stream: both calls in one group, on one thread.
  tr_stream_t stream = nullptr;
  EXPECT_TR(tr_stream_from_cuda(&stream, nullptr));
  const UserStream second(cudaStreamDefault);
  DeviceArray<float> a(100, 1), b(100, 2);
  scale(a.get(), 100, 10, 0, nullptr, 2000);  // before rank 0's call
  EXPECT_TR(tr_all_reduce(a.get(), a.get(), 100, TR_FLOAT32, TR_SUM, comms_[0], stream));
  const UserStream free;
  EXPECT_TR(tr_all_reduce(b.get(), b.get(), 100, TR_FLOAT32, TR_SUM, comms_[1], free.get()));
  std::vector<float> found(100);
  EXPECT_EQ(cudaMemcpy(found.data(), a.get(), 400, cudaMemcpyDefault), cudaSuccess);  // in order
  EXPECT_EQ(found, std::vector<float>(100, 12));
  EXPECT_TR(tr_stream_synchronize(free.get()));
  EXPECT_EQ(b.wrong(12), 0u);
  EXPECT_TR(tr_stream_destroy(stream));
}

TEST_F(Streams, AGraphIsCapturedOnceAndReplayedOften) {
  on_threads(kRanks, [&](int r) {
    for (const std::uint64_t count : kCounts) {
      const UserStream stream;
      const DeviceArray<float> in(count, -1), sum(count, 0), all(kRanks * count, 0);
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      EXPECT_EQ(cudaStreamBeginCapture(stream.cuda(), cudaStreamCaptureModeThreadLocal),
                cudaSuccess);
      scale(in.get(), count, 1, 1, stream.cuda(), 20);
      EXPECT_TR(
          tr_all_reduce(in.get(), sum.get(), count, TR_FLOAT32, TR_SUM, comms_[r], stream.get()));
      scale(sum.get(), count, 2, 0, stream.cuda(), 20);
      EXPECT_TR(tr_all_gather(sum.get(), all.get(), count, TR_FLOAT32, comms_[r], stream.get()));
      EXPECT_EQ(cudaStreamEndCapture(stream.cuda(), &graph), cudaSuccess);
      EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
      EXPECT_EQ(in.wrong(-1) + sum.wrong(0) + all.wrong(0), 0u);  // nothing ran
      for (int i = 0; i < 12; ++i) {
        std::vector<float> data(count, static_cast<float>(i * (r + 1)));
        EXPECT_EQ(
            cudaMemcpyAsync(in.get(), data.data(), count * 4, cudaMemcpyDefault, stream.cuda()),
            cudaSuccess);
        EXPECT_EQ(cudaGraphLaunch(exec, stream.cuda()), cudaSuccess);
        if (i % 3 == 2) {  // calls outside of the graph go between, on the same stream
          EXPECT_TR(tr_barrier(comms_[r], stream.get()));
        }
        EXPECT_TR(tr_stream_synchronize(stream.get()));
        const float expected = static_cast<float>(2 * (3 * i + 2));
        EXPECT_EQ(all.wrong(expected), 0u) << "replay " << i << ", count " << count;
      }
      EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
  });
}

TEST_F(Streams, ReplaysWithoutAWaitBetweenThem) {
  on_threads(kRanks, [&](int r) {
    const UserStream stream;
    const DeviceArray<float> data(600, static_cast<float>(r));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream.cuda(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_TR(
        tr_all_reduce(data.get(), data.get(), 600, TR_FLOAT32, TR_SUM, comms_[r], stream.get()));
    EXPECT_EQ(cudaStreamEndCapture(stream.cuda(), &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(cudaGraphLaunch(exec, stream.cuda()), cudaSuccess);
    EXPECT_TR(tr_stream_synchronize(stream.get()));
    EXPECT_EQ(data.wrong(32768), 0u);  // 1 * 2^15
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  });
}

TEST_F(Streams, AGroupIsIssuedAtItsEnd) {
  on_threads(kRanks, [&](int r) {
    for (const bool blocking : {true, false}) {
      const UserStream stream;
      const tr_stream_t s = blocking ? nullptr : stream.get();
      const DeviceArray<float> a(300, static_cast<float>(r + 1)), b(20000, 1);
      const DeviceArray<std::int32_t> c(5, r), d(10, -1);
      float host = static_cast<float>(r);
      EXPECT_TR(tr_group_start());
      EXPECT_TR(tr_all_reduce(a.get(), a.get(), 300, TR_FLOAT32, TR_PROD, comms_[r], s));
      EXPECT_TR(tr_all_reduce(b.get(), b.get(), 20000, TR_FLOAT32, TR_SUM, comms_[r], s));
      EXPECT_TR(tr_all_gather(c.get(), d.get(), 5, TR_INT32, comms_[r], s));
      EXPECT_TR(tr_all_reduce(&host, &host, 1, TR_FLOAT32, TR_SUM, comms_[r], nullptr));
      EXPECT_EQ(d.wrong(-1), 0u);
      EXPECT_TR(tr_group_end());
      EXPECT_EQ(host, 1);
      if (!blocking) EXPECT_TR(tr_stream_synchronize(s));
      EXPECT_EQ(a.wrong(2), 0u);
      EXPECT_EQ(b.wrong(2), 0u);
      for (int i = 0; i < 10; ++i) EXPECT_EQ(d.get()[i], i / 5);
    }
  });
}

TEST(InitAll, OneThreadDrivesAllRanks) {
  constexpr int kAll = 3;
  tr_comm_t comms[kAll];
  ASSERT_EQ(tr_comm_init_all(comms, kAll), TR_SUCCESS) << tr_get_last_error();
  for (const std::uint64_t count : kCounts) {
    std::vector<std::unique_ptr<DeviceArray<float>>> data;
    std::vector<std::unique_ptr<UserStream>> streams;
    for (int r = 0; r < kAll; ++r) {
      data.push_back(std::make_unique<DeviceArray<float>>(count, static_cast<float>(r + 1)));
      streams.push_back(std::make_unique<UserStream>());
    }
    for (const bool blocking : {true, false}) {
      for (int r = 0; r < kAll; ++r)
        data[static_cast<std::size_t>(r)]->fill(static_cast<float>(r + 1));
      EXPECT_TR(tr_group_start());
      for (int r = 0; r < kAll; ++r) {
        const auto i = static_cast<std::size_t>(r);
        EXPECT_TR(tr_all_reduce(data[i]->get(), data[i]->get(), count, TR_FLOAT32, TR_SUM, comms[r],
                                blocking ? nullptr : streams[i]->get()));
      }
      EXPECT_TR(tr_group_end());
      for (const auto& s : streams) EXPECT_TR(tr_stream_synchronize(s->get()));
      for (const auto& d : data) EXPECT_EQ(d->wrong(6), 0u) << count;
    }
  }
  for (tr_comm_t comm : comms) EXPECT_TR(tr_comm_destroy(comm));
}

// Its sends and receives too: longer than all slots, interleaved over the communicators.
TEST(InitAll, OneThreadDrivesTheMessagesOfAllRanks) {
  constexpr int kAll = 3;
  constexpr std::uint64_t kCount = 1'000'000;
  tr_comm_t comms[kAll];
  ASSERT_EQ(tr_comm_init_all(comms, kAll), TR_SUCCESS) << tr_get_last_error();
  std::vector<std::unique_ptr<DeviceArray<float>>> in, out;
  std::vector<std::unique_ptr<UserStream>> streams;
  for (int r = 0; r < kAll; ++r) {
    in.push_back(std::make_unique<DeviceArray<float>>(kCount, static_cast<float>(r)));
    out.push_back(std::make_unique<DeviceArray<float>>(kCount, -1));
    streams.push_back(std::make_unique<UserStream>());
  }
  for (const bool blocking : {true, false}) {
    const auto stream = [&](std::size_t i) { return blocking ? nullptr : streams[i]->get(); };
    for (const auto& o : out) o->fill(-1);
    EXPECT_TR(tr_group_start());
    for (std::size_t i = 0; i < kAll; ++i) {
      const int next = static_cast<int>(i + 1) % kAll;
      EXPECT_TR(tr_send(in[i]->get(), kCount, TR_FLOAT32, next, comms[i], stream(i)));
    }
    for (std::size_t i = 0; i < kAll; ++i) {
      const int last = static_cast<int>(i + kAll - 1) % kAll;
      EXPECT_TR(tr_recv(out[i]->get(), kCount, TR_FLOAT32, last, comms[i], stream(i)));
    }
    EXPECT_TR(tr_group_end());
    for (const auto& s : streams) EXPECT_TR(tr_stream_synchronize(s->get()));
    for (std::size_t i = 0; i < kAll; ++i) {
      EXPECT_EQ(out[i]->wrong(static_cast<float>((i + kAll - 1) % kAll)), 0u) << i;
    }
  }
  for (tr_comm_t comm : comms) EXPECT_TR(tr_comm_destroy(comm));
}

}  // namespace
}  // namespace treering::test
