// What the tests of algos/ share.
#pragma once

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "algos/checker.hpp"
#include "algos/registry.hpp"

namespace treering::algos {

// TR_TEST_LONG=1: full products instead of rotating samples.
inline bool long_mode() {
  const char* value = std::getenv("TR_TEST_LONG");
  return value != nullptr && std::string(value) == "1";
}

// Sanitizers look for faults of the checker itself, which do not wait for large sizes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline int floor_log2(int n) { return n < 2 ? 0 : 1 + floor_log2(n / 2); }
// a modulo n, for a >= -2n.
inline int wrap(int a, int n) { return (a + 2 * n) % n; }

inline std::vector<int> proven_sizes() {
  std::vector<int> sizes;
  for (int n = 1; n <= 17; ++n) sizes.push_back(n);
  if (kSanitized && !long_mode()) return sizes;
  for (const int n : {32, 33, 64, 100}) sizes.push_back(n);
  return sizes;
}

inline bool has_root(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kBroadcast ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

// All roots of small communicators; of large ones the first, the last and one between.
inline std::vector<int> roots(Collective collective, int size) {
  if (!has_root(collective)) return {0};
  std::vector<int> all;
  if (size > 8) return {0, size / 2 + 1, size - 1};
  for (int root = 0; root < size; ++root) all.push_back(root);
  return all;
}

inline std::string full_name(const Algorithm& algorithm) {
  return std::string(collective_name(algorithm.collective)) + "_" + algorithm.name;
}

// Those that do not ask for hosts; hosts_test.cpp has the others.
inline std::vector<Algorithm> flat_algorithms() {
  std::vector<Algorithm> algorithms;
  for (const Algorithm& a : all_algorithms()) {
    if (!a.needs_hosts()) algorithms.push_back(a);
  }
  return algorithms;
}

// One test per algorithm: TEST_P with GetParam() an Algorithm.
class EachAlgorithm : public ::testing::TestWithParam<Algorithm> {
 protected:
  static std::string where(int size, int root, bool in_place) {
    return full_name(GetParam()) + " n=" + std::to_string(size) + " root=" + std::to_string(root) +
           (in_place ? " in place" : "");
  }
};

inline std::string algorithm_test_name(const ::testing::TestParamInfo<Algorithm>& info) {
  return full_name(info.param);
}

}  // namespace treering::algos

#define TR_FOR_EACH_ALGORITHM(suite)                                                           \
  INSTANTIATE_TEST_SUITE_P(, suite, ::testing::ValuesIn(::treering::algos::flat_algorithms()), \
                           ::treering::algos::algorithm_test_name)
