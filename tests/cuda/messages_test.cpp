// tr_send and tr_recv on device memory: as on the host, to the bit.
//
//   messages_test threads|processes
#include <algorithm>
#include <cstring>

#include "cuda/support.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

Mode g_mode = Mode::kThreads;

#define RETURN_IF_FAILED(call)                                                         \
  do {                                                                                 \
    const tr_result_t result_ = (call);                                                \
    if (result_ != TR_SUCCESS) return std::string(#call) + ": " + tr_get_last_error(); \
  } while (false)

// Byte `at` of message `number` from src to dst: different in all, so that no old or foreign byte
// is right.
std::uint8_t byte_of(int src, int dst, int number, std::uint64_t at) {
  std::uint64_t x =
      at * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(number * 4096 + src * 64 + dst);
  x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9ull;
  return static_cast<std::uint8_t>(x >> 56);
}

// Messages between guards, at any element alignment.
class Bytes {
 public:
  Bytes(std::uint64_t bytes, std::uint64_t shift)
      : memory_(bytes + shift + 2 * kGuard, kOld), bytes_(bytes), shift_(shift + kGuard) {}
  std::uint8_t* get() const { return memory_.get() + shift_; }
  void fill(int src, int dst, int number) const {
    for (std::uint64_t i = 0; i < bytes_; ++i) get()[i] = byte_of(src, dst, number, i);
  }
  std::string wrong(int src, int dst, int number) const {
    for (std::uint64_t i = 0; i < bytes_; ++i) {
      if (get()[i] != byte_of(src, dst, number, i)) {
        return "byte " + std::to_string(i) + " of " + std::to_string(bytes_) + ", message " +
               std::to_string(number) + " from " + std::to_string(src) + " to " +
               std::to_string(dst);
      }
    }
    for (std::uint64_t i = 0; i < memory_.count(); ++i) {
      const bool inside = i >= shift_ && i < shift_ + bytes_;
      if (!inside && memory_.get()[i] != kOld) return "wrote outside the buffer";
    }
    return {};
  }

 private:
  static constexpr std::uint64_t kGuard = 64;
  static constexpr std::uint8_t kOld = 0x5A;
  DeviceArray<std::uint8_t> memory_;
  std::uint64_t bytes_, shift_;
};

// A send and a receive of a group, with their buffers.
struct Message {
  int src, dst, number;
  std::uint64_t count;
  tr_type_t type;
};

// Issues those of this rank in one group, as they are listed, and looks at what came.
std::string exchange(tr_comm_t comm, int rank, const std::vector<Message>& messages,
                     tr_stream_t stream) {
  std::vector<std::unique_ptr<Bytes>> sent(messages.size()), received(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    const std::uint64_t size = tr_type_size(m.type), bytes = m.count * size;
    if (m.src == rank) {
      sent[i] = std::make_unique<Bytes>(bytes, i * 3 % 17 * size);
      sent[i]->fill(m.src, m.dst, m.number);
    }
    if (m.dst == rank) received[i] = std::make_unique<Bytes>(bytes, i * 5 % 13 * size);
  }
  RETURN_IF_FAILED(tr_group_start());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    if (sent[i]) RETURN_IF_FAILED(tr_send(sent[i]->get(), m.count, m.type, m.dst, comm, stream));
    if (received[i])
      RETURN_IF_FAILED(tr_recv(received[i]->get(), m.count, m.type, m.src, comm, stream));
  }
  RETURN_IF_FAILED(tr_group_end());
  RETURN_IF_FAILED(tr_stream_synchronize(stream));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    std::string wrong;
    if (received[i]) wrong = received[i]->wrong(m.src, m.dst, m.number);
    if (wrong.empty() && sent[i]) wrong = sent[i]->wrong(m.src, m.dst, m.number);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

void expect_fine(int n, const RankBody& body) { EXPECT_EQ(run_ranks(g_mode, n, body, 60), ""); }

// Every type, count and alignment around the ring, and to itself; slots of 1 KiB make long messages
// of short ones.
TEST(Messages, AroundTheRingInEveryShape) {
  for (const char* slot_bytes : {"1024", "0"}) {
    const Env slots("TR_CUDA_SLOT_BYTES", slot_bytes);
    for (int n = 1; n <= 4; ++n) {
      expect_fine(n, [&](tr_comm_t comm, int rank, int size) -> std::string {
        int number = 0;
        for (const std::uint64_t count : {0, 1, 13, 257, 4097, 20011}) {
          std::vector<Message> messages;
          const auto type =
              static_cast<tr_type_t>((number * 5 + static_cast<int>(count)) % TR_NUM_TYPES);
          for (int r = 0; r < size; ++r) {
            messages.push_back({r, (r + 1) % size, ++number, count, type});
            messages.push_back({r, r, ++number, count, type});
          }
          if (std::string wrong = exchange(comm, rank, messages, nullptr); !wrong.empty())
            return wrong + ", count " + std::to_string(count);
        }
        return {};
      });
    }
  }
}

// Both ways at once, of different lengths, several to a pair, some pairs silent; then the same with
// two blocks for all lanes.
TEST(Messages, AllToAllOfDifferentLengths) {
  const Env slots("TR_CUDA_SLOT_BYTES", "1024");
  for (const char* channels : {"4", "1"}) {
    const Env blocks("TR_CUDA_CHANNELS", channels);
    for (const int n : {2, 3, 4}) {
      expect_fine(n, [](tr_comm_t comm, int rank, int size) -> std::string {
        const UserStream stream;
        for (int round = 0; round < 6; ++round) {
          std::vector<Message> messages;
          for (int i = 0; i < 3; ++i) {
            for (int src = 0; src < size; ++src) {
              for (int dst = 0; dst < size; ++dst) {
                const auto h =
                    static_cast<std::uint64_t>(src * 7 + dst * 3 + i * 5 + round * 11) % 10;
                const std::uint64_t count = h == 3 ? 0 : h == 4 ? 9000 : h * h * 20;
                messages.push_back({src, dst, round * 100 + i, count, TR_UINT8});
              }
            }
          }
          // Each lane keeps its order; the lanes do not.
          std::stable_sort(
              messages.begin(), messages.end(), [&](const Message& a, const Message& b) {
                return (a.src * 5 + a.dst * 3 + round) % 7 < (b.src * 5 + b.dst * 3 + round) % 7;
              });
          std::string wrong = exchange(comm, rank, messages, round % 2 ? stream.get() : nullptr);
          if (!wrong.empty()) return wrong + ", round " + std::to_string(round);
        }
        return {};
      });
    }
  }
}

// Blocking calls without a group, whose messages are longer than all slots together.
TEST(Messages, BlockingOnesMeet) {
  const Env slots("TR_CUDA_SLOT_BYTES", "1024");
  expect_fine(3, [](tr_comm_t comm, int rank, int size) -> std::string {
    for (int i = 0; i < 12; ++i) {
      const std::uint64_t count = i % 4 == 3 ? 40000 : static_cast<std::uint64_t>(1 + i * 50);
      const Bytes token(count, static_cast<std::uint64_t>(i));
      const int next = (rank + 1) % size, last = (rank + size - 1) % size;
      if (rank == 0) {
        token.fill(0, 0, i);
        RETURN_IF_FAILED(tr_send(token.get(), count, TR_UINT8, next, comm, nullptr));
      }
      RETURN_IF_FAILED(tr_recv(token.get(), count, TR_UINT8, last, comm, nullptr));
      if (std::string wrong = token.wrong(0, 0, i); !wrong.empty()) return wrong;
      if (rank != 0) RETURN_IF_FAILED(tr_send(token.get(), count, TR_UINT8, next, comm, nullptr));
    }
    return {};
  });
}

// Sends and receives have links and blocks of their own: they wait for no collective, nor does one
// wait for them, whatever the order on each rank.
TEST(Messages, NeedNoOrderWithCollectives) {
  const Env slots("TR_CUDA_SLOT_BYTES", "1024");
  expect_fine(2, [](tr_comm_t comm, int rank, int) -> std::string {
    const UserStream a, b;
    for (int i = 0; i < 4; ++i) {
      constexpr std::uint64_t kCount = 30000;
      const Bytes data(kCount, 0);
      const DeviceArray<float> sum(1000, static_cast<float>(rank + 1));
      const auto reduce = [&] {
        return tr_all_reduce(sum.get(), sum.get(), 1000, TR_FLOAT32, TR_SUM, comm, a.get());
      };
      if (rank == 0) {
        data.fill(0, 1, i);
        RETURN_IF_FAILED(tr_send(data.get(), kCount, TR_UINT8, 1, comm, b.get()));
        RETURN_IF_FAILED(reduce());
      } else {
        RETURN_IF_FAILED(reduce());
        RETURN_IF_FAILED(tr_stream_synchronize(a.get()));  // done, though nobody has received
        RETURN_IF_FAILED(tr_recv(data.get(), kCount, TR_UINT8, 0, comm, b.get()));
      }
      RETURN_IF_FAILED(tr_stream_synchronize(b.get()));
      RETURN_IF_FAILED(tr_stream_synchronize(a.get()));
      if (std::string wrong = data.wrong(0, 1, i); !wrong.empty()) return wrong;
      if (sum.wrong(3) != 0) return "the sum";
    }
    return {};
  });
}

// A group's sends and receives on two streams, and one on none: one kernel, in the order of each.
TEST(Messages, OfAGroupOnSeveralStreamsProgressTogether) {
  const Env slots("TR_CUDA_SLOT_BYTES", "1024");
  expect_fine(2, [](tr_comm_t comm, int rank, int) -> std::string {
    const UserStream a, b;
    const int peer = 1 - rank;
    constexpr std::uint64_t kCount = 50000;
    for (int i = 0; i < 6; ++i) {
      const DeviceArray<std::uint8_t> from(kCount, 1), to(kCount, 2), more(kCount, 3);
      // Each stream has something to do before, and after.
      std::vector<std::uint8_t> start(kCount, static_cast<std::uint8_t>(10 * i + rank)),
          end(kCount);
      if (cudaMemcpyAsync(from.get(), start.data(), kCount, cudaMemcpyDefault, a.cuda()) !=
          cudaSuccess)
        return "copy";
      RETURN_IF_FAILED(tr_group_start());
      RETURN_IF_FAILED(tr_send(from.get(), kCount, TR_UINT8, peer, comm, a.get()));
      RETURN_IF_FAILED(tr_recv(to.get(), kCount, TR_UINT8, peer, comm, b.get()));
      if (i % 2) {
        RETURN_IF_FAILED(tr_send(from.get(), kCount, TR_UINT8, rank, comm, b.get()));
        RETURN_IF_FAILED(tr_recv(more.get(), kCount, TR_UINT8, rank, comm, nullptr));
      }
      RETURN_IF_FAILED(tr_group_end());
      // A call without a stream blocks the group's end until all is done.
      if (i % 2 && more.wrong(static_cast<std::uint8_t>(10 * i + rank)) != 0) return "from itself";
      if (cudaMemcpyAsync(end.data(), to.get(), kCount, cudaMemcpyDefault, b.cuda()) !=
              cudaSuccess ||
          cudaMemsetAsync(from.get(), 77, kCount, a.cuda()) != cudaSuccess)
        return "copy";
      RETURN_IF_FAILED(tr_stream_synchronize(a.get()));
      RETURN_IF_FAILED(tr_stream_synchronize(b.get()));
      const auto expected = static_cast<std::uint8_t>(10 * i + peer);
      if (std::count(end.begin(), end.end(), expected) != static_cast<long>(kCount))
        return "exchange " + std::to_string(i);
    }
    return {};
  });
}

TEST(Messages, AGraphIsCapturedOnceAndReplayedOften) {
  const Env slots("TR_CUDA_SLOT_BYTES", "1024");
  expect_fine(3, [](tr_comm_t comm, int rank, int size) -> std::string {
    const int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (const std::uint64_t count : {5, 20000}) {
      const UserStream stream;
      const DeviceArray<std::int32_t> in(count, -1), out(count, -1), sum(count, 0);
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      if (cudaStreamBeginCapture(stream.cuda(), cudaStreamCaptureModeThreadLocal) != cudaSuccess)
        return "begin";
      RETURN_IF_FAILED(tr_group_start());
      RETURN_IF_FAILED(tr_send(in.get(), count, TR_INT32, next, comm, stream.get()));
      RETURN_IF_FAILED(tr_recv(out.get(), count, TR_INT32, last, comm, stream.get()));
      RETURN_IF_FAILED(tr_group_end());
      RETURN_IF_FAILED(
          tr_all_reduce(out.get(), sum.get(), count, TR_INT32, TR_SUM, comm, stream.get()));
      if (cudaStreamEndCapture(stream.cuda(), &graph) != cudaSuccess ||
          cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess)
        return "end";
      if (out.wrong(-1) + sum.wrong(0) != 0) return "it ran while it was captured";
      for (int i = 0; i < 9; ++i) {
        std::vector<std::int32_t> data(count, 100 * i + rank);
        if (cudaMemcpyAsync(in.get(), data.data(), count * 4, cudaMemcpyDefault, stream.cuda()) !=
                cudaSuccess ||
            cudaGraphLaunch(exec, stream.cuda()) != cudaSuccess)
          return "launch";
        if (i % 3 == 2) {  // calls outside of the graph go between, on the same links
          RETURN_IF_FAILED(tr_group_start());
          RETURN_IF_FAILED(tr_send(out.get(), count, TR_INT32, last, comm, stream.get()));
          RETURN_IF_FAILED(tr_recv(in.get(), count, TR_INT32, next, comm, stream.get()));
          RETURN_IF_FAILED(tr_group_end());
        }
        RETURN_IF_FAILED(tr_stream_synchronize(stream.get()));
        if (out.wrong(100 * i + last) != 0) return "replay " + std::to_string(i);
        if (sum.wrong(300 * i + 3) != 0) return "sum of replay " + std::to_string(i);
        if (i % 3 == 2 && in.wrong(100 * i + rank) != 0) return "what came back";
      }
      if (cudaGraphExecDestroy(exec) != cudaSuccess || cudaGraphDestroy(graph) != cudaSuccess)
        return "destroy";
    }
    return {};
  });
}

// The streams of a group join in a graph as they do outside of one, and afterwards again.
TEST(Messages, OfSeveralStreamsCanBeCaptured) {
  const Env slots("TR_CUDA_SLOT_BYTES", "1024");
  expect_fine(2, [](tr_comm_t comm, int rank, int) -> std::string {
    const UserStream a, b;
    constexpr std::uint64_t kCount = 30000;
    DeviceArray<std::int32_t> in(kCount, rank);
    const DeviceArray<std::int32_t> out(kCount, -1);
    const auto exchange_on_both = [&]() -> std::string {
      RETURN_IF_FAILED(tr_group_start());
      RETURN_IF_FAILED(tr_send(in.get(), kCount, TR_INT32, 1 - rank, comm, a.get()));
      RETURN_IF_FAILED(tr_recv(out.get(), kCount, TR_INT32, 1 - rank, comm, b.get()));
      RETURN_IF_FAILED(tr_group_end());
      return {};
    };
    cudaEvent_t fork = nullptr, join = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    bool fine = cudaEventCreateWithFlags(&fork, cudaEventDisableTiming) == cudaSuccess &&
                cudaEventCreateWithFlags(&join, cudaEventDisableTiming) == cudaSuccess &&
                cudaStreamBeginCapture(a.cuda(), cudaStreamCaptureModeThreadLocal) == cudaSuccess &&
                cudaEventRecord(fork, a.cuda()) == cudaSuccess &&
                cudaStreamWaitEvent(b.cuda(), fork, 0) == cudaSuccess;
    if (std::string wrong = exchange_on_both(); !wrong.empty()) return wrong;
    fine = fine && cudaEventRecord(join, b.cuda()) == cudaSuccess &&
           cudaStreamWaitEvent(a.cuda(), join, 0) == cudaSuccess &&
           cudaStreamEndCapture(a.cuda(), &graph) == cudaSuccess &&
           cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess;
    if (!fine || out.wrong(-1) != 0) return "the capture";
    for (int i = 0; i < 3; ++i) {
      in.fill(10 * i + rank);
      if (cudaGraphLaunch(exec, a.cuda()) != cudaSuccess) return "launch";
      RETURN_IF_FAILED(tr_stream_synchronize(a.get()));
      if (out.wrong(10 * i + 1 - rank) != 0) return "replay";
      in.fill(100 * i + rank);
      if (std::string wrong = exchange_on_both(); !wrong.empty()) return wrong;
      RETURN_IF_FAILED(tr_stream_synchronize(b.get()));
      if (out.wrong(100 * i + 1 - rank) != 0) return "after a replay";
      RETURN_IF_FAILED(tr_stream_synchronize(a.get()));
    }
    fine = cudaGraphExecDestroy(exec) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess &&
           cudaEventDestroy(fork) == cudaSuccess && cudaEventDestroy(join) == cudaSuccess;
    return fine ? "" : "destroy";
  });
}

// What is received in a group may be reduced and sent on in the same group: calls that share
// buffers keep their order.
TEST(Messages, InAGroupWithCollectivesKeepTheOrderOfTheirBuffers) {
  const Env slots("TR_CUDA_SLOT_BYTES", "1024");
  expect_fine(3, [](tr_comm_t comm, int rank, int size) -> std::string {
    const UserStream stream;
    const int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (const bool blocking : {true, false}) {
      const tr_stream_t s = blocking ? nullptr : stream.get();
      constexpr std::uint64_t kCount = 6000;
      const DeviceArray<std::int32_t> a(kCount, rank + 1), b(kCount, -1), c(kCount, -1);
      const DeviceArray<std::int32_t> d(kCount, -1), e(kCount, rank), f(kCount, -1);
      std::int32_t host = rank;
      RETURN_IF_FAILED(tr_group_start());
      RETURN_IF_FAILED(tr_send(a.get(), kCount, TR_INT32, next, comm, s));
      RETURN_IF_FAILED(tr_recv(b.get(), kCount, TR_INT32, last, comm, s));  // last + 1
      RETURN_IF_FAILED(tr_all_reduce(b.get(), c.get(), kCount, TR_INT32, TR_SUM, comm, s));  // 6
      RETURN_IF_FAILED(tr_all_reduce(&host, &host, 1, TR_INT32, TR_SUM, comm, nullptr));
      RETURN_IF_FAILED(tr_send(c.get(), kCount, TR_INT32, next, comm, s));
      RETURN_IF_FAILED(tr_recv(d.get(), kCount, TR_INT32, last, comm, s));  // 6
      RETURN_IF_FAILED(tr_send(b.get(), kCount, TR_INT32, last, comm, s));  // b of next: rank + 1
      RETURN_IF_FAILED(tr_recv(f.get(), kCount, TR_INT32, next, comm, s));
      RETURN_IF_FAILED(tr_broadcast(e.get(), e.get(), kCount, TR_INT32, 2, comm, s));
      RETURN_IF_FAILED(tr_group_end());
      if (!blocking) RETURN_IF_FAILED(tr_stream_synchronize(s));
      if (b.wrong(last + 1) != 0 || c.wrong(6) != 0 || d.wrong(6) != 0) return "what was sent on";
      if (e.wrong(2) != 0 || host != 3) return "the other calls";
      if (f.wrong(rank + 1) != 0) return "what came back";
    }
    return {};
  });
}

// Hundreds in a group are one kernel still; what it cannot hold is refused before anything runs.
TEST(Messages, ManyInOneGroup) {
  constexpr int kMost = 768;
  expect_fine(2, [](tr_comm_t comm, int rank, int) -> std::string {
    std::vector<Message> messages;
    for (int i = 0; i < kMost / 2; ++i) {
      messages.push_back(
          {i % 3 == 0, i % 3 != 0, i, static_cast<std::uint64_t>(1 + i % 40), TR_INT32});
      messages.push_back(
          {i % 3 != 0, i % 3 == 0, i, static_cast<std::uint64_t>(1 + i % 30), TR_UINT8});
    }
    if (std::string wrong = exchange(comm, rank, messages, nullptr); !wrong.empty()) return wrong;
    messages.push_back({0, 1, 0, 1, TR_UINT8});
    messages.push_back({1, 0, 0, 1, TR_UINT8});
    const std::string refused = exchange(comm, rank, messages, nullptr);
    if (refused.find("a group has 770 sends and receives") == std::string::npos) return refused;
    messages.resize(4);
    return exchange(comm, rank, messages, nullptr);
  });
}

}  // namespace
}  // namespace treering::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::string(argv[1]) == "processes")
    treering::test::g_mode = treering::test::Mode::kProcesses;
  return RUN_ALL_TESTS();
}
