// A set of ranks of one communicator. A value type; threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace treering {

class RankSet {
 public:
  RankSet() = default;
  explicit RankSet(int ranks) : words_((static_cast<std::size_t>(ranks) + 63) / 64) {}

  void add(int rank) { words_[word_of(rank)] |= bit_of(rank); }
  bool has(int rank) const { return (words_[word_of(rank)] & bit_of(rank)) != 0; }
  // Of the same communicator.
  void merge(const RankSet& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  bool operator==(const RankSet&) const = default;
  auto operator<=>(const RankSet&) const = default;  // for ordered containers only

  std::vector<int> ranks() const {
    std::vector<int> all;
    for (std::size_t r = 0; r < words_.size() * 64; ++r) {
      if (has(static_cast<int>(r))) all.push_back(static_cast<int>(r));
    }
    return all;
  }
  std::vector<std::uint64_t>& words() { return words_; }
  const std::vector<std::uint64_t>& words() const { return words_; }

 private:
  static std::size_t word_of(int rank) { return static_cast<std::size_t>(rank) / 64; }
  static std::uint64_t bit_of(int rank) { return std::uint64_t{1} << (rank % 64); }
  std::vector<std::uint64_t> words_;
};

}  // namespace treering
