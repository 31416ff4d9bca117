// The gradient reducer and the replay that proves the trainer, with ranks as threads.
#include "train_mlp/reducer.hpp"

#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ranks.hpp"
#include "train_mlp/counter_rng.hpp"
#include "train_mlp/replay.hpp"

namespace {

using train::Net;
using train::Reducer;

constexpr std::size_t kKiB = 1024;

TEST(Buckets, CoverTheParametersInOrderWithinTheirCaps) {
  const Net net = train::make_square_net(6, 32);  // six layers of 4 KiB
  const auto buckets =
      train::make_buckets(net, {.bucket_bytes = 8 * kKiB, .first_bucket_bytes = 1});
  ASSERT_EQ(buckets.size(), 4u);  // one layer, two, two, one
  std::size_t next = 0;
  for (const train::Bucket& b : buckets) {
    EXPECT_EQ(b.begin, next);
    EXPECT_LE((b.end - b.begin) * sizeof(float), 8 * kKiB);
    EXPECT_EQ(net.layers[b.last_layer].weight_at + net.layers[b.last_layer].parameters(), b.end);
    next = b.end;
  }
  EXPECT_EQ(next, net.parameters());
  EXPECT_EQ(buckets.front().last_layer, 5);
  EXPECT_EQ(buckets.back().last_layer, 0);

  EXPECT_EQ(train::make_buckets(net, {.bucket_bytes = 1, .first_bucket_bytes = 1}).size(), 6u);
  EXPECT_EQ(train::make_buckets(net, {}).size(), 1u);  // 24 KiB fit into the first of 1 MiB
  // The preset cs336: four layers of 4 MiB do not fit into the first, three of them into the
  // second.
  const auto preset = train::make_buckets(train::make_square_net(4, 1024), {});
  ASSERT_EQ(preset.size(), 2u);
  EXPECT_EQ(preset[0].end, 1024u * 1024u);
}

// What rank r contributes to element i in step s.
float given(int rank, int step, std::size_t i) {
  return static_cast<float>(train::random_bits(step, rank, i) % 1000);
}

void check_sums(bool overlap, std::size_t bucket_bytes, int expected_early) {
  constexpr int n = 3, kSteps = 3;
  const Net net = train::make_square_net(5, 40);
  run_ranks(n, [&](tr::Communicator& comm) {
    const auto device = std::move(compute::make_device("host", 0)).value();
    auto made = Reducer::create(
        comm, *device, net,
        {.bucket_bytes = bucket_bytes, .first_bucket_bytes = bucket_bytes, .overlap = overlap});
    ASSERT_TRUE(made.ok()) << made.error().message;
    Reducer reducer = std::move(made).value();
    for (int step = 0; step < kSteps; ++step) {
      // As the backward pass does: a layer's gradients are written just before it is reported.
      for (int l = 4; l >= 0; --l) {
        const std::size_t begin = net.layers[l].weight_at;
        for (std::size_t i = begin; i < begin + net.layers[l].parameters(); ++i) {
          reducer.gradients()[i] = given(comm.rank(), step, i);
        }
        reducer.layer_done(l);
      }
      EXPECT_OK(reducer.finish());
      for (std::size_t i = 0; i < net.parameters(); ++i) {
        float sum = 0.0f;
        for (int q = 0; q < n; ++q) sum += given(q, step, i);
        ASSERT_EQ(reducer.gradients()[i], sum) << "step " << step << " element " << i;
      }
    }
    EXPECT_EQ(reducer.launched_early(), kSteps * expected_early);
    const auto alone = reducer.seconds_alone(3);
    ASSERT_TRUE(alone.ok()) << alone.error().message;
    EXPECT_GT(alone.value(), 0.0);
    EXPECT_EQ(reducer.launched_early(), 0);  // measuring leaves no trace
  });
}

// Five layers of 6.25 KiB each. All buckets but the one that layer 0 completes leave during the
// backward pass.
TEST(Reducer, OneBucketPerLayerOverlapped) { check_sums(true, 1, 4); }
TEST(Reducer, TwoLayersPerBucketOverlapped) { check_sums(true, 13 * kKiB, 2); }
TEST(Reducer, OneBucketCannotOverlap) { check_sums(true, 1 << 20, 0); }
TEST(Reducer, WithoutOverlapNothingLeavesEarly) { check_sums(false, 1, 0); }

TEST(Reducer, AFailedCommunicatorIsReported) {
  const Net net = train::make_square_net(2, 8);
  run_ranks(1, [&](tr::Communicator& comm) {
    const auto device = std::move(compute::make_device("host", 0)).value();
    auto made = Reducer::create(comm, *device, net, {});
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_OK(comm.abort());
    made.value().layer_done(1);
    made.value().layer_done(0);
    const tr::Status s = made.value().finish();
    ASSERT_FALSE(s.ok());
    EXPECT_EQ(s.error().code, TR_ABORTED);
  });
}

// A step of `ranks` ranks, carried out by hand in the order that the replay promises.
class ReplayTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3, kRows = 10;  // shares of 3, 3 and 4 rows

  void SetUp() override {
    backend_ = std::move(compute::make_backend("host", 0, "ref")).value();
    parameters_.resize(net_.parameters());
    train::initialize(net_, 1, parameters_);
    batch_.features = net_.inputs();
    for (int i = 0; i < kRows * net_.inputs(); ++i) {
      batch_.x.push_back(train::random_symmetric(2, 0, i));
    }
    for (int i = 0; i < kRows; ++i) batch_.y.push_back(static_cast<std::uint8_t>(i % 4));
    replay_.emplace(net_, backend_, options_, kRanks, kRows, parameters_);
    gradients_ = sum_of_shares();
    train::AdamW(net_.parameters(), backend_, options_).step(parameters_, gradients_);
  }

  std::vector<float> sum_of_shares() {
    train::Mlp mlp(net_, backend_, kRows);
    std::vector<float> sum(net_.parameters()), part(net_.parameters());
    for (int q = 0; q < kRanks; ++q) {
      const train::Range range = train::share(kRows, q, kRanks);
      const auto x = std::span(batch_.x).subspan(range.first * net_.inputs());
      mlp.forward(parameters_, x, range.count());
      mlp.loss(std::span(batch_.y).subspan(range.first), kRows);
      mlp.backward(parameters_, part, [](int) {});
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = q == 0 ? part[i] : sum[i] + part[i];
    }
    return sum;
  }

  const Net net_ = train::make_classifier(std::array{6, 5, 4});
  const train::AdamWOptions options_{};
  compute::Backend backend_;
  std::vector<float> parameters_, gradients_;
  train::Table batch_;
  std::optional<train::SerialReplay> replay_;
};

TEST_F(ReplayTest, AcceptsTheRightStep) {
  EXPECT_OK(replay_->step(batch_, kRows, gradients_, parameters_));
  EXPECT_EQ(replay_->steps(), 1);
  EXPECT_GT(replay_->worst_error(), 0.0);  // shares round differently from the whole
}

TEST_F(ReplayTest, NamesAGradientThatIsOffByOneBit) {
  const std::size_t wrong = net_.layers[0].weight_at + 2 * net_.layers[0].out + 1;
  gradients_[wrong] = std::nextafter(gradients_[wrong], 1.0f);
  const tr::Status s = replay_->step(batch_, kRows, gradients_, parameters_);
  ASSERT_FALSE(s.ok());
  EXPECT_NE(s.error().message.find("gradient of layer 0 weight [2, 1]"), std::string::npos)
      << s.error().message;
}

TEST_F(ReplayTest, NamesAParameterThatIsOffByOneBit) {
  const std::size_t wrong = net_.layers[1].bias_at + 3;
  parameters_[wrong] = std::nextafter(parameters_[wrong], 1.0f);
  const tr::Status s = replay_->step(batch_, kRows, gradients_, parameters_);
  ASSERT_FALSE(s.ok());
  EXPECT_NE(s.error().message.find("parameter layer 1 bias [3]"), std::string::npos)
      << s.error().message;
}

// The classic mistake: the mean of the ranks' means, though their shares differ in size.
TEST_F(ReplayTest, RefusesTheMeanOfMeans) {
  train::Mlp mlp(net_, backend_, kRows);
  std::vector<float> start(net_.parameters()), part(net_.parameters());
  train::initialize(net_, 1, start);
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  for (int q = 0; q < kRanks; ++q) {
    const train::Range range = train::share(kRows, q, kRanks);
    const auto x = std::span(batch_.x).subspan(range.first * net_.inputs());
    mlp.forward(start, x, range.count());
    mlp.loss(std::span(batch_.y).subspan(range.first), range.count() * kRanks);
    mlp.backward(start, part, [](int) {});
    for (std::size_t i = 0; i < part.size(); ++i) gradients_[i] += part[i];
  }
  const tr::Status s = replay_->step(batch_, kRows, gradients_, parameters_);
  ASSERT_FALSE(s.ok());
  EXPECT_NE(s.error().message.find("off the gradient of the whole batch"), std::string::npos)
      << s.error().message;
}

}  // namespace
