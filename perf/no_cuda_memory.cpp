// A build without CUDA.
#include "perf/memory.hpp"

namespace treering::perf {

Failure why_no_cuda() {
  return "this build of treering has no CUDA: `meson setup` says why, and -Dcuda=enabled insists";
}

Failure make_cuda_memory(int, std::unique_ptr<Memory>*) { return why_no_cuda(); }

}  // namespace treering::perf
