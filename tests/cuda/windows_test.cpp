// Calls on registered device memory: when windows are used, how they fail, and what stays as it
// was. (Bits: the matrix. Order: links_test. Registration: window_map_test.)
#include <chrono>
#include <thread>

#include "cuda/support.hpp"

namespace treering::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string explanation(tr_comm_t comm) {
  const char* text = nullptr;
  return tr_comm_explain(comm, &text) == TR_SUCCESS ? text : tr_get_last_error();
}

constexpr std::uint64_t kMost = 200'000;  // floats

// Two arrays of every rank, registered with its communicator.
class Windows {
 public:
  explicit Windows(
      const Comms& comms, const std::function<int(int)>& device_of = [](int) { return 0; })
      : comms_(comms), ranks_(static_cast<std::size_t>(comms.size())) {
    on_threads(comms.size(), [&](int r) {
      ASSERT_EQ(cudaSetDevice(device_of(r)), cudaSuccess);
      ranks_[static_cast<std::size_t>(r)] = std::make_unique<Rank>();
      for (const auto& [array, window] :
           {std::pair{&of(r).a, &of(r).window_a}, std::pair{&of(r).b, &of(r).window_b}}) {
        EXPECT_TR(tr_comm_register(comms[r], array->get(), kMost * sizeof(float), window));
      }
    });
  }
  ~Windows() {
    for (int r = 0; r < comms_.size(); ++r) deregister(r);
  }
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  const DeviceArray<float>& a(int r) { return of(r).a; }
  const DeviceArray<float>& b(int r) { return of(r).b; }
  void deregister(int r) {
    for (tr_window_t* window : {&of(r).window_a, &of(r).window_b}) {
      if (*window != nullptr) {
        EXPECT_TR(tr_comm_deregister(comms_[r], *window));
      }
      *window = nullptr;
    }
  }

 private:
  struct Rank {
    DeviceArray<float> a{kMost, 1}, b{kMost, 0};
    tr_window_t window_a = nullptr, window_b = nullptr;
  };
  Rank& of(int r) { return *ranks_[static_cast<std::size_t>(r)]; }

  const Comms& comms_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST(Explain, SaysWhatRegisteredBuffersGetAndWhy) {
  const Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  EXPECT_EQ(explanation(comms[0]).find("registered"), std::string::npos);
  Windows windows(comms);
  const std::string text = explanation(comms[1]);
  const std::size_t start = text.find("with registered buffers on the device:\n");
  ASSERT_NE(start, std::string::npos) << text;
  const std::string first = text.substr(start, text.find("reduce:", start) - start);
  for (const char* line :
       {"from 8 bytes: one_shot, LL (small: one step of latency; ",
        "from 16384 bytes: window_one_shot, Simple (all buffers are registered; short: each rank "
        "folds "
        "all inputs where they lie; for signals only)",
        "from 131072 bytes: window, Simple (all buffers are registered: each rank folds its part "
        "where it lies and stores it to all; for signals only)"}) {
    EXPECT_NE(first.find(line), std::string::npos) << line << "\n in\n" << first;
  }
}

// What a call waits for says which algorithm it is.
Answer alone(const Comms& comms, const float* in, float* out, std::uint64_t count,
             tr_op_t op = TR_SUM) {
  EXPECT_TR(tr_comm_set_option(comms[0], TR_OPT_TIMEOUT_MS, 300));
  const Clock::time_point start = Clock::now();
  const Answer a = answer(tr_all_reduce(in, out, count, TR_FLOAT32, op, comms[0], nullptr));
  EXPECT_EQ(a.code, TR_TIMEOUT) << a;
  EXPECT_GE(seconds_since(start), 0.25);
  EXPECT_LE(seconds_since(start), 3);
  return a;
}

TEST(Choice, WindowsServeRegisteredBuffersOnly) {
  enum { kBoth, kOneInside, kPartOutside, kDeregistered, kPremultiplied };
  for (const int which : {kBoth, kOneInside, kPartOutside, kDeregistered, kPremultiplied}) {
    const Comms comms(2);
    ASSERT_TRUE(comms.ok()) << comms.made(0);
    Windows windows(comms);
    const DeviceArray<float> outside(kMost, 1);
    tr_op_t op = TR_SUM;
    if (which == kDeregistered) windows.deregister(0);
    if (which == kPremultiplied) {
      EXPECT_TR(tr_op_create_premul_sum(&op, 0.5));
    }
    const float* const in = windows.a(0).get();
    float* const out = which == kOneInside ? outside.get() : windows.b(0).get();
    const std::uint64_t count = which == kPartOutside ? kMost + 1 : kMost;
    const Answer a = alone(comms, in, out, count, op);
    EXPECT_EQ(a.says("(await, chunk 0"), which == kBoth) << which << ": " << a;
    EXPECT_TRUE(a.says("rank 1")) << a;
    if (op != TR_SUM) {
      EXPECT_TR(tr_op_destroy(op));
    }
  }
}

TEST(Calls, GiveTheSameAsOnOtherMemory) {
  constexpr int kRanks = 4;
  const auto device_of = [](int r) { return r / 2; };
  const Comms comms(kRanks, device_of);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  Windows windows(comms, device_of);
  on_threads(kRanks, [&](int r) {
    ASSERT_EQ(cudaSetDevice(device_of(r)), cudaSuccess);
    const UserStream stream;
    const DeviceArray<float>&a = windows.a(r), &b = windows.b(r);
    for (const std::uint64_t count : {1, 3000, 5000, 30000, 199999}) {
      for (int i = 0; i < 3; ++i) {
        // Nothing between the calls: each overwrites what peers have just read.
        EXPECT_TR(
            tr_all_reduce(a.get(), b.get(), count, TR_FLOAT32, TR_SUM, comms[r], stream.get()));
        EXPECT_TR(
            tr_all_reduce(b.get(), b.get(), count, TR_FLOAT32, TR_AVG, comms[r], stream.get()));
        EXPECT_TR(tr_all_reduce(b.get() + 1, a.get() + 1, count - 1, TR_FLOAT32, TR_SUM, comms[r],
                                stream.get()));
        EXPECT_TR(tr_all_reduce(a.get() + 1, a.get() + 1, count - 1, TR_FLOAT32, TR_AVG, comms[r],
                                stream.get()));
      }
      EXPECT_TR(tr_stream_synchronize(stream.get()));
      EXPECT_EQ(a.get()[0], 1);
      EXPECT_EQ(b.get()[0], 4);
      for (std::uint64_t i = 1; i < count; ++i) {  // 16 times as much in each of three turns
        ASSERT_EQ(a.get()[i], 4096) << "rank " << r << ", element " << i << " of " << count;
        a.get()[i] = 1;
      }
      EXPECT_TR(tr_barrier(comms[r], nullptr));
    }
  });
}

TEST(Calls, OfAGraphAreReplayedOnWindows) {
  const Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  Windows windows(comms);
  on_threads(2, [&](int r) {
    const UserStream stream;
    const DeviceArray<float>&a = windows.a(r), &b = windows.b(r);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream.cuda(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_TR(tr_all_reduce(a.get(), b.get(), kMost, TR_FLOAT32, TR_SUM, comms[r], stream.get()));
    EXPECT_TR(tr_all_gather(b.get() + 100, a.get(), kMost / 2, TR_FLOAT32, comms[r], stream.get()));
    EXPECT_EQ(cudaStreamEndCapture(stream.cuda(), &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(cudaGraphLaunch(exec, stream.cuda()), cudaSuccess);
      EXPECT_TR(tr_all_reduce(a.get(), b.get(), 10, TR_FLOAT32, TR_SUM, comms[r], stream.get()));
    }
    EXPECT_TR(tr_stream_synchronize(stream.get()));
    EXPECT_EQ(a.wrong(32), 0u);
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  });
}

// A window goes when the calls that use it are done, and the next call works without it.
TEST(Calls, InFlightHoldTheirWindows) {
  const Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  Windows windows(comms);
  on_threads(2, [&](int r) {
    const UserStream stream;
    const DeviceArray<float>&a = windows.a(r), &b = windows.b(r);
    if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TR(tr_all_reduce(a.get(), b.get(), kMost, TR_FLOAT32, TR_SUM, comms[r], stream.get()));
    windows.deregister(r);
    EXPECT_EQ(b.wrong(2), 0u);  // waited for
    EXPECT_TR(tr_all_reduce(b.get(), b.get(), kMost, TR_FLOAT32, TR_SUM, comms[r], stream.get()));
    EXPECT_TR(tr_stream_synchronize(stream.get()));
    EXPECT_EQ(b.wrong(4), 0u);
  });
}

// One call differs on rank 1. No rank may answer with success, nor may peers' memory be written to
// before it is known that both mean the same.
struct Difference {
  const char* name;
  std::uint64_t count0, count1;
  tr_type_t type1;
  tr_op_t op1;
  bool on_windows1;  // both ranks read and write peers' memory
};
class Mismatch : public testing::TestWithParam<Difference> {};
INSTANTIATE_TEST_SUITE_P(
    Calls, Mismatch,
    testing::Values(Difference{"LongerCount", 30000, 40000, TR_FLOAT32, TR_SUM, true},
                    Difference{"ShorterCount", 150000, 149999, TR_FLOAT32, TR_SUM, true},
                    Difference{"OtherWindowAlgorithm", 8000, 80000, TR_FLOAT32, TR_SUM, true},
                    Difference{"TooSmallForWindows", 8, 80000, TR_FLOAT32, TR_SUM, false},
                    Difference{"Type", 80000, 80000, TR_INT32, TR_SUM, true},
                    Difference{"Operator", 80000, 80000, TR_FLOAT32, TR_MAX, true},
                    Difference{"NotRegistered", 80000, 80000, TR_FLOAT32, TR_SUM, false}),
    [](const auto& param) { return std::string(param.param.name); });

TEST_P(Mismatch, IsAnErrorOnBothRanks) {
  const Difference& d = GetParam();
  const Env timeout("TR_TIMEOUT_S", "5");
  const Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  Windows windows(comms);
  const DeviceArray<float> outside(kMost, 1);
  const bool is_same_call = std::string(d.name) == "NotRegistered";
  const Clock::time_point start = Clock::now();
  on_threads(2, [&](int r) {
    const bool other = r == 1;
    const float* const in = other && is_same_call ? outside.get() : windows.a(r).get();
    const Answer a = answer(tr_all_reduce(in, windows.b(r).get(), other ? d.count1 : d.count0,
                                          other ? d.type1 : TR_FLOAT32, other ? d.op1 : TR_SUM,
                                          comms[r], nullptr));
    EXPECT_EQ(a.code, TR_MISMATCH) << "rank " << r << ": " << a;
    if (is_same_call) {
      EXPECT_TRUE(a.says("pass registered buffers on all of them or on none")) << a;
    } else {
      EXPECT_TRUE(a.says("rank 0: all_reduce of " + std::to_string(d.count0))) << a;
      EXPECT_TRUE(a.says("rank 1: all_reduce of " + std::to_string(d.count1))) << a;
    }
  });
  EXPECT_LE(seconds_since(start), 3);  // not the deadline
  if (d.on_windows1) {
    EXPECT_EQ(windows.b(0).wrong(0) + windows.b(1).wrong(0), 0u);
  }
}

TEST(Wait, IsEndedByAbort) {
  const Comms comms(2);  // the deadline is ten minutes
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  Windows windows(comms);
  const Clock::time_point start = Clock::now();
  std::thread waiter([&] {
    const Answer a = answer(tr_all_reduce(windows.a(0).get(), windows.b(0).get(), kMost, TR_FLOAT32,
                                          TR_SUM, comms[0], nullptr));
    EXPECT_EQ(a.code, TR_ABORTED) << a;
    EXPECT_TRUE(a.says("rank 1")) << a;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TR(tr_comm_abort(comms[1]));
  waiter.join();
  EXPECT_LE(seconds_since(start), 5);
  EXPECT_EQ(windows.b(0).wrong(0), 0u);
}

}  // namespace
}  // namespace treering::test
