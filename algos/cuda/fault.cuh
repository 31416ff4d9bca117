// Faults that tests build into the kernels (-DTR_TEST_FAULT=kRelaxedPost), to see that they are
// found: tests/cuda. The library has none.
#pragma once

#include <cstdint>

#ifndef TR_TEST_FAULT
#define TR_TEST_FAULT kNone
#endif

namespace treering::cuda {

enum class Fault : std::uint8_t {
  kNone,
  kNoBarrierBeforePost,  // a message is posted before all threads have written it
  kRelaxedPost,          // and without a release
  kOneFlagOfTwo,         // half a line of LL is believed without its flag
  kNoCover,              // LL does not fill whole slots from time to time
  kOneFlagOfFour,        // four lines of LL128 are believed by the flag of the first
};
inline constexpr Fault kFault = Fault::TR_TEST_FAULT;

}  // namespace treering::cuda
