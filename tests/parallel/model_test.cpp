// Models: what they are made of, what they refuse, and where they start.
#include "treering/parallel/model.hpp"

#include <cmath>
#include <gtest/gtest.h>

#include "team.hpp"

namespace {

using namespace partest;
using tr::par::Loss;
using tr::par::Split;

std::string described(const ParameterSpec& one) {
  return std::to_string(one.number) + " " + one.name() + " " + std::to_string(one.rows) + "x" +
         std::to_string(one.cols) + " " + name_of(one.layout) +
         (one.gradient_is_partial ? " partial" : "");
}
std::vector<std::string> described(const Model& model) {
  std::vector<std::string> all;
  for (const ParameterSpec& one : model.parameters()) all.push_back(described(one));
  return all;
}

TEST(Model, ListsItsParameters) {
  Model model(Loss::kCrossEntropy);
  model.linear(6, 8, Split::kColumn).norm().relu().linear(8, 4, Split::kRow);
  model.linear(4, 3).without_bias();
  EXPECT_EQ(model.num_parameters(), 6 + 6 + 48 + 8 + 32 + 4 + 12);
  EXPECT_EQ(model.to_string(), "6-8-4-3 relu, 116 parameters");
  EXPECT_EQ(described(model), (std::vector<std::string>{
                                  "0 layer 0 gamma 1x6 replicated", "1 layer 0 beta 1x6 replicated",
                                  "2 layer 0 weight 6x8 columns", "3 layer 0 bias 1x8 columns",
                                  "4 layer 1 weight 8x4 rows", "5 layer 1 bias 1x4 replicated",
                                  "6 layer 2 weight 4x3 replicated"}));
  // On a part of the rows each: sums over them are partial.
  model.sequence_parallel();
  EXPECT_EQ(
      described(model),
      (std::vector<std::string>{
          "0 layer 0 gamma 1x6 replicated partial", "1 layer 0 beta 1x6 replicated partial",
          "2 layer 0 weight 6x8 columns", "3 layer 0 bias 1x8 columns", "4 layer 1 weight 8x4 rows",
          "5 layer 1 bias 1x4 replicated partial", "6 layer 2 weight 4x3 replicated partial"}));
}

TEST(Model, SaysWhatCannotBeTrained) {
  const auto refused = [](const Model& model, int tp = 4) { return message_of(model.check(tp)); };
  Model model(Loss::kCrossEntropy);
  EXPECT_EQ(refused(model), "model: it has no layers");
  EXPECT_EQ(refused(Model(model).relu().linear(4, 4)),
            "model: relu() changes the last layer, and there was none yet");
  EXPECT_EQ(refused(Model(model).linear(4, 0)), "layer 0: 4 inputs and 0 outputs");
  EXPECT_EQ(refused(Model(model).linear(4, 8).linear(6, 4)),
            "layer 1: 6 inputs, but the layer before it has 8 outputs");
  EXPECT_EQ(refused(Model(model).linear(4, 10, Split::kColumn)),
            "layer 0: 4 tensor-parallel ranks cannot share its 10 outputs evenly: take a multiple "
            "of 4, or do not split it");
  EXPECT_EQ(refused(Model(model).linear(4, 10, Split::kColumn), 5), "");
  EXPECT_EQ(refused(Model(model).linear(4, 8, Split::kRow)),
            "layer 0: a row split needs its input split: by a column split before it");
  EXPECT_EQ(refused(Model(model).linear(4, 8).linear(8, 8, Split::kRow)),
            "layer 1: a row split needs its input split: by a column split before it");
  EXPECT_EQ(refused(Model(model).linear(4, 8, Split::kColumn).linear(8, 8, Split::kRow).norm()),
            "layer 1: a norm needs whole rows, but a row split's input is split by columns");
  EXPECT_EQ(refused(Model(model).linear(4, 8).dropout(1.0)),
            "layer 0: a dropout of 1.000000: it must be at least 0 and less than 1");
  EXPECT_EQ(refused(model.linear(4, 8, Split::kColumn).relu().linear(8, 3, Split::kRow)), "");
}

TEST(Model, StagesAreAsEvenAsCanBe) {
  EXPECT_EQ(tr::par::even_stages(10, 3), (std::vector<int>{4, 3, 3}));
  EXPECT_EQ(tr::par::even_stages(4, 4), (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(tr::par::even_stages(2, 3), (std::vector<int>{1, 1, 0}));
}

Matrix started(const Model& model, int number, int rank, int size) {
  const ParameterSpec one = model.parameters()[number];
  Matrix part(one.rows / (one.layout == Layout::kRows ? size : 1),
              one.cols / (one.layout == Layout::kColumns ? size : 1));
  initialize(one, model.layers()[one.layer], 5, rank, size, part.x.data());
  return part;
}

// Shards that all seed alike would all be equal; and scaled by their own width, too large.
TEST(Model, F6ShardsStartAsPartsOfOneMatrix) {
  Model model(Loss::kCrossEntropy);
  model.linear(64, 96, Split::kColumn).norm().relu().linear(96, 64, Split::kRow);
  for (int number = 0; number < 6; ++number) {
    const Matrix whole = started(model, number, 0, 1);
    for (const int size : {2, 4}) {
      for (int rank = 0; rank < size; ++rank) {
        const Matrix mine = started(model, number, rank, size);
        expect_equal(mine, part_of(whole, model.parameters()[number].layout, rank, size));
        if (model.parameters()[number].kind == ParameterSpec::Kind::kWeight && rank > 0) {
          EXPECT_NE(mine, started(model, number, 0, size));
        }
      }
    }
  }
}

TEST(Model, WeightsStartWithTheRightVariance) {
  Model model(Loss::kCrossEntropy);
  model.linear(200, 300).relu().norm().linear(300, 200).linear(200, 300).relu();
  const auto deviation = [&](int number) {
    const Matrix w = started(model, number, 0, 1);
    double sum = 0, squares = 0;
    for (const double one : w.x) {
      sum += one;
      squares += one * one;
    }
    const auto count = static_cast<double>(w.x.size());
    EXPECT_NEAR(sum / count, 0.0, 5 * std::sqrt(squares / count / count));
    return std::sqrt(squares / count);
  };
  // 60,000 numbers: the deviation itself deviates by about 0.2 %.
  EXPECT_NEAR(deviation(2), std::sqrt(2.0 / 200), 0.01 * std::sqrt(2.0 / 200));
  EXPECT_NEAR(deviation(4), std::sqrt(1.0 / 300), 0.01 * std::sqrt(1.0 / 300));
  expect_equal(started(model, 3, 0, 1), Matrix(1, 300));                // bias
  expect_equal(started(model, 1, 0, 1), Matrix(1, 200));                // beta
  EXPECT_EQ(started(model, 0, 0, 1).x, std::vector<double>(200, 1.0));  // gamma
  // Layers of one shape start differently.
  EXPECT_NE(started(model, 2, 0, 1), started(model, 6, 0, 1));
}

}  // namespace
