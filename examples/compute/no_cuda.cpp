// A build without CUDA. There is no GPU device then, so nobody asks for what belongs to one.
#include <cstdlib>

#include "compute/cuda.hpp"

namespace compute {

tr::Result<std::unique_ptr<Device>> make_cuda_device(int) {
  return tr::Error{TR_UNSUPPORTED,
                   "--device cuda needs a build with CUDA: `meson setup` says why this one has "
                   "none, and -Dcuda=enabled insists"};
}
std::unique_ptr<Operations> make_cuda_operations(Device&) { std::abort(); }
std::unique_ptr<Gemm> make_cuda_reference_gemm(Device&) { std::abort(); }
tr::Result<std::unique_ptr<Gemm>> make_cublas_gemm(Device&) { std::abort(); }

}  // namespace compute
