#include "compute/operations.hpp"

#include "compute/cuda.hpp"
#include "compute/elementwise.hpp"

namespace compute {
namespace {

struct HostLoop {
  // By value: a compiler that knows that nothing else changes f can vectorise.
  template <class F>
  void operator()(std::size_t rows, std::size_t columns, const F f) const {
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t column = 0; column < columns; ++column) f(row, column);
    }
  }
};

}  // namespace

std::unique_ptr<Operations> make_operations(Device& device) {
  if (!device.is_host()) return make_cuda_operations(device);
  return std::make_unique<Elementwise<HostLoop>>(HostLoop{});
}

}  // namespace compute
