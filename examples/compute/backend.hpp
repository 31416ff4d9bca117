// All that computes, in one place.
#pragma once

#include <memory>
#include <string_view>

#include "compute/device.hpp"
#include "compute/gemm.hpp"
#include "compute/operations.hpp"

namespace compute {

struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Operations> operations;
  std::unique_ptr<Gemm> gemm;
};

// As make_device and make_gemm.
tr::Result<Backend> make_backend(std::string_view device, int local_rank, std::string_view gemm);

}  // namespace compute
