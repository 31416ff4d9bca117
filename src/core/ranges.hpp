// A range around each operation, for tools that record what a program does when (NVIDIA Nsight
// Systems).
//
// It is NVTX where the build finds its header (core/cuda_nvtx.cpp), else nothing
// (core/no_ranges.cpp). Without a tool a range costs a comparison; with one, nothing is allocated
// here either. All ranges are in the domain "treering"; those of a communicator have its category.
#pragma once

#include <cstdint>

namespace treering {

// "all_gather_v ring LL 4096 B", "send 64 B, rank 1", "group". All texts are static.
struct RangeName {
  static constexpr std::uint64_t kNoBytes = ~std::uint64_t{0};

  const char* operation = "";
  bool uneven = false;              // _v
  const char* algorithm = nullptr;  // nullptr: none
  const char* protocol = nullptr;
  std::uint64_t bytes = kNoBytes;  // also the range's payload
  int peer = -1;
};

// Whose a range is. 0: no tool records, and there will be no range.
using RangeOwner = std::uint32_t;

// A communicator's; called when it forms. Tools show it as "communicator 1: rank 0 of 4", numbered
// by process.
RangeOwner make_range_owner(int rank, int size);

// From begin() to the end of the object, on one thread; ranges of a thread nest.
class Range {
 public:
  Range() = default;
  Range(RangeOwner owner, const RangeName& name) { begin(owner, name); }
  ~Range() {
    if (open_) pop();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  // Once.
  void begin(RangeOwner owner, const RangeName& name) {
    if (owner == 0) return;
    push(owner, name);
    open_ = true;
  }

 private:
  static void push(RangeOwner owner, const RangeName& name);
  static void pop();

  bool open_ = false;
};

}  // namespace treering
