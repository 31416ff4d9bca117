// Groups of collectives on device memory: how many kernels they are, and how they fail.
#include <chrono>
#include <thread>

#include "cuda/support.hpp"
#include "cudasim/control.hpp"

namespace treering::test {
namespace {

// How many kernels a group is, for each rank.
class Launches : public testing::Test {
 protected:
  static constexpr int kRanks = 3;
  void SetUp() override { ASSERT_TRUE(comms_.ok()) << comms_.made(0); }
  // Of `calls` sums of so many float32 each, of streams in turn.
  double of(const std::vector<std::uint64_t>& counts, int num_streams = 1) {
    const std::uint64_t before = cudasim::launches();
    on_threads(kRanks, [&](int r) {
      std::vector<std::unique_ptr<UserStream>> streams;
      for (int i = 0; i < num_streams; ++i) streams.push_back(std::make_unique<UserStream>());
      std::vector<std::unique_ptr<DeviceArray<float>>> data;
      EXPECT_TR(tr_group_start());
      for (std::size_t i = 0; i < counts.size(); ++i) {
        data.push_back(std::make_unique<DeviceArray<float>>(counts[i], static_cast<float>(r + 1)));
        float* const x = data.back()->get();
        EXPECT_TR(tr_all_reduce(x, x, counts[i], TR_FLOAT32, TR_SUM, comms_[r],
                                streams[i % streams.size()]->get()));
      }
      EXPECT_TR(tr_group_end());
      for (const auto& stream : streams) EXPECT_TR(tr_stream_synchronize(stream->get()));
      for (const auto& array : data) EXPECT_EQ(array->wrong(6), 0u);
    });
    return static_cast<double>(cudasim::launches() - before) / kRanks;
  }
  Comms comms_{kRanks};
};

TEST_F(Launches, SmallOnesOfAGroupAreOne) {
  EXPECT_EQ(of({5}), 1);
  EXPECT_EQ(of({1, 2, 3, 4, 5, 6, 7, 8}), 1);
  EXPECT_EQ(of(std::vector<std::uint64_t>(9, 10)), 1);    // a longer parameter
  EXPECT_EQ(of(std::vector<std::uint64_t>(128, 10)), 1);  // and all that it holds
  EXPECT_EQ(of(std::vector<std::uint64_t>(129, 10)), 2);
}

TEST_F(Launches, ProtocolsAndStreamsDivideThem) {
  EXPECT_EQ(of({5, 30'000, 40'000, 6, 7}), 3);  // LL, LL128, LL
  EXPECT_EQ(of({5, 6, 7}, 3), 3);
}

TEST_F(Launches, CallsWithoutElementsAreNone) {
  EXPECT_EQ(of({0, 0}), 0);
  EXPECT_EQ(of({0, 5, 0, 6}), 1);
}

// What cannot be had on a GPU is refused; what was issued before it runs.
TEST_F(Launches, ARefusedCallLeavesThoseBeforeIt) {
  const std::uint64_t before = cudasim::launches();
  on_threads(kRanks, [&](int r) {
    const DeviceArray<float> a(10, 1), b(10, 1), c(10, 1);
    tr_op_t op = TR_SUM;
    EXPECT_TR(tr_op_create(
        &op, [](void*, const void*, size_t, tr_type_t, void*) {}, 1, nullptr));
    EXPECT_TR(tr_group_start());
    EXPECT_TR(tr_all_reduce(a.get(), a.get(), 10, TR_FLOAT32, TR_SUM, comms_[r], nullptr));
    EXPECT_TR(tr_all_reduce(b.get(), b.get(), 10, TR_FLOAT32, op, comms_[r], nullptr));
    EXPECT_TR(tr_all_reduce(c.get(), c.get(), 10, TR_FLOAT32, TR_SUM, comms_[r], nullptr));
    const Answer refused = answer(tr_group_end());
    EXPECT_TRUE(refused.says("a user-defined operator runs on host memory only")) << refused;
    EXPECT_TR(tr_op_destroy(op));
    const DeviceArray<float> d(10, 2);
    EXPECT_TR(tr_all_reduce(d.get(), d.get(), 10, TR_FLOAT32, TR_SUM, comms_[r], nullptr));
    EXPECT_EQ(a.wrong(3) + c.wrong(1) + d.wrong(6), 0u);
  });
  EXPECT_EQ(cudasim::launches() - before, 2u * kRanks);
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Sums of so many float32 each, in one group; what its end answers.
Answer sums(tr_comm_t comm, const std::vector<std::uint64_t>& counts, tr_stream_t stream) {
  std::vector<std::unique_ptr<DeviceArray<float>>> data;
  EXPECT_TR(tr_group_start());
  for (const std::uint64_t count : counts) {
    data.push_back(std::make_unique<DeviceArray<float>>(count, 1));
    float* const x = data.back()->get();
    EXPECT_TR(tr_all_reduce(x, x, count, TR_FLOAT32, TR_SUM, comm, stream));
  }
  const Answer ended = answer(tr_group_end());
  return stream == nullptr || ended.code != TR_SUCCESS ? ended
                                                       : answer(tr_stream_synchronize(stream));
}

// Protocols with tails and without, and an algorithm of several lanes: what fails in one of them,
// the others learn at a junction.
class Failing : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(comms_.ok()) << comms_.made(0);
    for (int r = 0; r < comms_.size(); ++r) {
      EXPECT_TR(tr_comm_set_algorithm(comms_[r], "all_reduce", std::get<1>(GetParam())));
    }
  }
  Env quiet_{"TR_LOG", "off"};
  Env timeout_{"TR_TIMEOUT_S", "0.4"};
  Env protocol_{"TR_PROTOCOL", std::get<0>(GetParam())};
  Comms comms_{2};
};
INSTANTIATE_TEST_SUITE_P(Kinds, Failing,
                         testing::Combine(testing::Values("Simple", "LL", "LL128"),
                                          testing::Values("ring", "tree")),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param)) + "_" +
                                  std::get<1>(param.param);
                         });

TEST_P(Failing, WhereARankStopsInTheMiddleRankAndCallAreNamed) {
  const UserStream stream;
  for (const tr_stream_t on : {tr_stream_t{}, stream.get()}) {
    const Clock::time_point start = Clock::now();
    on_threads(2, [&](int r) {
      if (r == 1) {
        if (on != nullptr) return;
        const Answer own = sums(comms_[1], {50, 60}, nullptr);
        EXPECT_EQ(own.code, TR_SUCCESS) << own;
        return;
      }
      const Answer a = sums(comms_[0], {50, 60, 9000, 70, 80}, on);  // the second time, at once
      EXPECT_EQ(a.code, TR_TIMEOUT) << a;
      EXPECT_TRUE(a.says("rank 1 (")) << a;
      EXPECT_TRUE(a.says("all_reduce, call 3 of the kernel")) << a;
    });
    const double seconds = seconds_since(start);
    EXPECT_TRUE(on != nullptr || seconds >= 0.35) << seconds;
    EXPECT_LE(seconds, 3);
  }
}

TEST_P(Failing, ADifferentCallWithinAGroupIsNamed) {
  for (int r = 0; r < 2; ++r) EXPECT_TR(tr_comm_set_option(comms_[r], TR_OPT_TIMEOUT_MS, 20'000));
  const Clock::time_point start = Clock::now();
  on_threads(2, [&](int r) {
    const Answer a = sums(comms_[r], {50, 60, r == 1 ? 900u : 901u, 70, 80}, nullptr);
    EXPECT_EQ(a.code, TR_MISMATCH) << a;
    EXPECT_TRUE(a.says("900") && a.says("901")) << a;
  });
  EXPECT_LE(seconds_since(start), 6);  // not the deadline
}

TEST_P(Failing, AbortEndsAllCallsOfTheKernel) {
  EXPECT_TR(tr_comm_set_option(comms_[0], TR_OPT_TIMEOUT_MS, 60'000));
  const Clock::time_point start = Clock::now();
  std::thread waiter([&] {
    const Answer a = sums(comms_[0], {50, 9000, 70}, nullptr);
    EXPECT_EQ(a.code, TR_ABORTED) << a;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TR(tr_comm_abort(comms_[0]));
  waiter.join();
  EXPECT_LE(seconds_since(start), 5);
}

}  // namespace
}  // namespace treering::test
