// Usage: tsan_traffic
// simple|ll|ll128|no_barrier_before_post|relaxed_post|no_barrier_before_release|shared
//
// For test_tsan.py: a correct kernel of each protocol, and kernels that break one rule. The results
// are right on this CPU in any case, more often than not; ThreadSanitizer must see the difference.
#include <cstdio>
#include <string>

#include "traffic.cuh"

namespace {

using namespace traffic;

// A warp reads what another wrote, without a barrier.
__global__ void shared_race(std::uint64_t* out) {
  __shared__ std::uint64_t value;
  if (thread_id() == 0) value = 7;
  if (thread_id() == 32) *out = value;
}

int run_shared_race() {
  std::uint64_t* out = nullptr;
  if (cudaMalloc(reinterpret_cast<void**>(&out), 8) != cudaSuccess) return -1;
  if (launch(shared_race, 1, 64, 0, nullptr, out) != cudaSuccess) return -1;
  return cudaFree(out) == cudaSuccess ? 0 : -1;
}

int run_named(const std::string& what) {
  constexpr int kMessages = 20;
  if (what == "simple") return run<Protocol::kSimple, Bug::kNone>(kMessages);
  if (what == "ll") return run<Protocol::kLl, Bug::kNone>(kMessages);
  if (what == "ll128") return run<Protocol::kLl128, Bug::kNone>(kMessages);
  if (what == "no_barrier_before_post")
    return run<Protocol::kSimple, Bug::kNoBarrierBeforePost>(kMessages);
  if (what == "no_barrier_before_release") {
    return run<Protocol::kSimple, Bug::kNoBarrierBeforeRelease>(kMessages);
  }
  if (what == "relaxed_post") return run<Protocol::kSimple, Bug::kRelaxedPost>(kMessages);
  if (what == "shared") return run_shared_race();
  return -1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int wrong = run_named(argv[1]);
  std::printf("%d threads saw a wrong number\n", wrong);
  return wrong < 0 ? 1 : 0;
}
