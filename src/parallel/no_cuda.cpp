// A build without CUDA.
#include "treering/parallel/compute.hpp"

#include "parallel/flow.hpp"

namespace tr::par {
namespace {

Error no_cuda() {
  return {TR_UNSUPPORTED,
          "a GPU needs a build with CUDA: `meson setup` says why this one has none, and "
          "-Dcuda=enabled insists"};
}

}  // namespace

Result<std::unique_ptr<Compute>> make_cuda_compute(std::string_view, int) { return no_cuda(); }
Result<std::unique_ptr<Flow>> make_cuda_flow(void*) { return no_cuda(); }
bool is_device_memory(const void*) { return false; }

}  // namespace tr::par
