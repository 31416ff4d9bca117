#include "compute/backend.hpp"

#include <utility>

namespace compute {

tr::Result<Backend> make_backend(std::string_view device, int local_rank, std::string_view gemm) {
  Backend backend;
  auto made = make_device(device, local_rank);
  if (!made) return made.error();
  backend.device = std::move(made).value();
  backend.operations = make_operations(*backend.device);
  auto product = make_gemm(*backend.device, gemm);
  if (!product) return product.error();
  backend.gemm = std::move(product).value();
  return backend;
}

}  // namespace compute
