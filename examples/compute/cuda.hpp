// The GPU's half: cuda_*.cpp and cuda_operations.cu, or no_cuda.cpp in a build without CUDA.
// For device.cpp, operations.cpp and gemm.cpp.
#pragma once

#include <memory>
#include <string_view>

#include "compute/device.hpp"
#include "compute/gemm.hpp"
#include "compute/operations.hpp"

namespace compute {

tr::Result<std::unique_ptr<Device>> make_cuda_device(int local_rank);
// Of a device that make_cuda_device made.
std::unique_ptr<Operations> make_cuda_operations(Device& device);
std::unique_ptr<Gemm> make_cuda_reference_gemm(Device& device);
tr::Result<std::unique_ptr<Gemm>> make_cublas_gemm(Device& device);

}  // namespace compute
