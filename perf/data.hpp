// The data rule: what every rank sends, and what every rank must then hold.
//
// Inputs are generated from (seed, rank, element) alone, so that each rank computes the expected
// result by itself and no second communication is trusted. They are such that every order of
// folding gives the same bits, which makes the comparison bitwise for every algorithm:
//
// - sum, premul_sum of floats: each rank gives a small integer multiple of one power of two (the
//   element's). The magnitudes of all ranks together fit the type's significand, so every partial
//   sum is a number of the type. Where there are more ranks than that allows (8-bit floats), some,
//   chosen per element, give plus or minus one multiple and the others zero.
// - avg of floats: as sum. The result may be one unit in the last place off the correctly rounded
//   one, since 1/n is rounded.
// - prod of floats: signed powers of two and one factor 1.5, few enough for the exponents.
// - min, max of floats: finite numbers without zeros.
// - integers: any bits, since sum and prod wrap (prod: odd numbers, which keep every bit in play).
//   For libraries that promise nothing on overflow (Open MPI's 8-bit sums saturate on CPUs with
//   AVX2): numbers that never overflow.
// - moves: any bits, NaN payloads included.
//
// The special pattern puts NaN, infinities, -0 and overflow into some of the elements of a
// reduction of floats; the expectation is then the rule in treering.h.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/case.hpp"

namespace treering::perf {

// What a library promises.
enum class Rules : std::uint32_t {
  kCommon,    // IEEE 754: no rule for NaN and -0 in min and max, nor for integer overflow
  kTreering,  // all of treering.h
};

// A part of a rank's result: element i is the fold over ranks [first_rank, last_rank) of their
// input elements from_elem + i. One rank: a move.
struct Block {
  std::uint64_t to_elem = 0;
  int first_rank = 0;
  int last_rank = 0;
  std::uint64_t from_elem = 0;
  std::uint64_t elems = 0;
};
// Empty where the result of a rank is not defined: reduce and gather off root, exscan on rank 0,
// barrier.
std::vector<Block> result_blocks(const Case& what, int ranks, int rank);

// The factor of a rank's inputs in premul_sum: 1 or 2, so that products stay exact.
double premul_factor(int rank);

class Pattern {
 public:
  Pattern(const Case& what, int ranks, std::uint64_t seed, Rules rules, bool specials);

  // The input of `rank`: send_elems elements (of a rooted operation: also off root, where it must
  // have no effect).
  void fill(int rank, void* send) const;
  // What `rank` must hold in recv afterwards; elements outside result_blocks are not written.
  void expect(int rank, void* recv) const;
  // How many elements of recv differ from that.
  std::uint64_t count_wrong(int rank, const void* recv) const;

 private:
  template <class T>
  void expect_elems(const Block& block, std::uint64_t begin, std::uint64_t elems, T* out) const;

  Case what_;
  int ranks_;
  std::uint64_t seed_;
  Rules rules_;
  bool specials_;
};

}  // namespace treering::perf
