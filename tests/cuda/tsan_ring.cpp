// Usage: tsan_ring Simple|LL|LL128|windows
//
// For test_tsan.py: all-reduces of three ranks by the kernels of few_kernels.cu, and sends to the
// next rank; or all-reduces from windows to windows. The numbers are right on this CPU even with a
// relaxed post; ThreadSanitizer must see the difference.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

#include "cuda/engines.hpp"
#include "cuda/few_kernels.hpp"

using namespace treering;

namespace {

constexpr int kRanks = 3;
constexpr std::uint64_t kMost = 1500;

// Sums of sums, in one kernel.
int use_windows(test::Engines& engines, std::int32_t* const (&a)[kRanks]) {
  engines.add_window([&](int r) { return a[r]; }, kMost * sizeof *a[0]);
  if (!engines.error().empty()) return 3;
  for (int r = 0; r < kRanks; ++r) {
    for (std::uint64_t k = 0; k < kMost; ++k) a[r][k] = static_cast<std::int32_t>(k) + r;
  }
  for (int r = 0; r < kRanks; ++r) {
    if (!engines.start_window_sum(r, kMost).ok()) return 4;
  }
  int wrong = 0;
  for (int r = 0; r < kRanks; ++r) {
    if (!engines[r].drain().ok()) return 5;
    for (std::uint64_t k = 0; k < kMost; ++k) {
      auto sum = static_cast<std::uint32_t>(3 * k + 3);
      for (int turn = 1; turn < cuda::kFewKernelsTurns; ++turn) sum *= kRanks;
      wrong += a[r][k] != static_cast<std::int32_t>(sum) ? 1 : 0;
    }
  }
  std::printf("%d wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto protocol = DeviceProtocol::kSimple;
  for (const DeviceProtocol p : {DeviceProtocol::kLL, DeviceProtocol::kLL128}) {
    if (std::strcmp(argv[1], device_protocol_name(p)) == 0) protocol = p;
  }
  DeviceLinkOptions options;
  options.channels = 2;
  for (std::uint32_t& bytes : options.slot_bytes) bytes = 512;
  // What a process has once is made here, before there are several ranks: the library is not built
  // with ThreadSanitizer, which therefore does not see what orders its static variables.
  { const test::Engines first(1, options); }
  test::Engines engines(kRanks, options);
  if (!engines.error().empty()) {
    std::printf("%s\n", engines.error().c_str());
    return 3;
  }
  std::int32_t *data[kRanks], *received[kRanks];
  for (auto* arrays : {data, received}) {
    for (int r = 0; r < kRanks; ++r) {
      if (cudaMalloc(reinterpret_cast<void**>(arrays + r), kMost * sizeof **data) != cudaSuccess)
        return 3;
    }
  }
  if (std::strcmp(argv[1], "windows") == 0) return use_windows(engines, data);
  int wrong = 0;
  for (const std::uint64_t count : {1500, 3, 300}) {
    for (int r = 0; r < kRanks; ++r) {
      for (std::uint64_t k = 0; k < count; ++k) data[r][k] = static_cast<std::int32_t>(k) + r;
    }
    for (int r = 0; r < kRanks; ++r) {
      if (!engines.start_sum(r, data[r], data[r], count, protocol, 64).ok()) return 4;
    }
    for (int r = 0; r < kRanks; ++r) {
      if (!engines[r].drain().ok()) return 5;
      for (std::uint64_t k = 0; k < count; ++k) {
        wrong += data[r][k] != 3 * static_cast<std::int32_t>(k) + 3 ? 1 : 0;
      }
    }
  }
  for (const std::uint64_t count : {1500, 300}) {
    for (int r = 0; r < kRanks; ++r) {
      for (std::uint64_t k = 0; k < kMost; ++k) data[r][k] = static_cast<std::int32_t>(k) + r;
      if (!engines.start_pass(r, data[r], received[r], count, 64).ok()) return 4;
    }
    for (int r = 0; r < kRanks; ++r) {
      if (!engines[r].drain().ok()) return 5;
      for (std::uint64_t k = 0; k < count; ++k) {
        wrong += received[r][k] != static_cast<std::int32_t>(k) + (r + kRanks - 1) % kRanks ? 1 : 0;
      }
    }
  }
  std::printf("%d wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}
