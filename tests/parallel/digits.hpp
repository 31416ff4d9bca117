// The 1,797 handwritten digits of the UCI repository, as examples/data has them.
#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>
#include <zlib.h>

#include "treering/parallel/rng.hpp"
#include "treering/parallel/trainer.hpp"

namespace partest {

// Those to train on, in the golden script's order; or the 360 to test with. Read by the tests
// themselves.
class Digits final : public tr::par::Data {
 public:
  enum class Part { kTrain, kTest };
  explicit Digits(const std::string& path, Part part = Part::kTrain) {
    gzFile file = gzopen(path.c_str(), "rb");
    EXPECT_NE(file, nullptr) << path;
    std::string text;
    char buffer[4096];
    for (int got; (got = gzread(file, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(got));
    }
    gzclose(file);
    std::istringstream lines(text);
    std::vector<std::vector<int>> all;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream numbers(line);
      std::vector<int> row;
      for (std::string number; std::getline(numbers, number, ',');)
        row.push_back(std::stoi(number));
      all.push_back(row);
    }
    std::vector<std::size_t> order(all.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::uint64_t left = order.size(); left > 1; --left) {
      std::swap(order[left - 1],
                order[tr::par::random_bits(0, tr::par::kSplitStream, left) % left]);
    }
    const bool is_train = part == Part::kTrain;
    for (std::size_t i = is_train ? 0 : 1437; i < (is_train ? 1437 : order.size()); ++i) {
      rows_.push_back(all[order[i]]);
    }
  }
  std::int64_t rows() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t features() const override { return 64; }
  void read(std::span<const std::int64_t> rows, std::span<float> features,
            std::span<std::int32_t> labels) const override {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::vector<int>& row = rows_[static_cast<std::size_t>(rows[i])];
      for (std::size_t j = 0; !features.empty() && j < 64; ++j) {
        features[i * 64 + j] = static_cast<float>(row[j]) / 16.0f;
      }
      if (!labels.empty()) labels[i] = row[64];
    }
  }

 private:
  std::vector<std::vector<int>> rows_;
};

}  // namespace partest
