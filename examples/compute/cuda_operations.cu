// The operations as kernels: a thread takes every so-and-so-many-th (row, column). And the
// fixed-order matrix product, which is slow, and has the host's bits.
#include <algorithm>

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx.cuh"
#include "compute/cuda.hpp"
#include "compute/cuda_device.hpp"
#include "compute/elementwise.hpp"

namespace compute {
namespace {

using namespace treering;

constexpr int kThreads = 256;
constexpr std::size_t kMaxBlocks = 1024;

template <class F>
TR_KERNEL(kThreads)
for_all(const F f, const std::size_t columns, const std::size_t count) {
  const std::size_t first =
      static_cast<std::size_t>(cuda::block_id()) * kThreads + cuda::thread_id();
  const std::size_t threads = static_cast<std::size_t>(cuda::grid_blocks()) * kThreads;
  for (std::size_t i = first; i < count; i += threads) f(i / columns, i % columns);
}

struct CudaLoop {
  CudaDevice* device;
  template <class F>
  void operator()(std::size_t rows, std::size_t columns, const F& f) const {
    const std::size_t count = rows * columns;
    if (count == 0) return;
    const std::size_t blocks = std::min((count + kThreads - 1) / kThreads, kMaxBlocks);
    device->note(cuda::launch(for_all<F>, static_cast<unsigned>(blocks), kThreads, 0,
                              device->stream(), f, columns, count),
                 "starting a kernel");
  }
};

// c(row, column) = sum of op(a)(row, i) * op(b)(i, column) over i, in this order.
struct Product {
  bool ta, tb;
  Matrix<const float> a, b;
  Matrix<float> c;
  COMPUTE_HD void operator()(std::size_t row, std::size_t column) const {
    const std::size_t k = ta ? a.rows : a.columns;
    float sum = 0.0f;
    for (std::size_t i = 0; i < k; ++i) {
      const float left = ta ? a.data[i * a.columns + row] : a.data[row * a.columns + i];
      const float right = tb ? b.data[column * b.columns + i] : b.data[i * b.columns + column];
      sum += left * right;
    }
    c.data[row * c.columns + column] = sum;
  }
};

class CudaReferenceGemm final : public Gemm {
 public:
  explicit CudaReferenceGemm(CudaLoop loop) : loop_(loop) {}
  const char* name() const override { return "ref"; }
  bool rows_are_independent() const override { return true; }
  void multiply(Transpose ta, Matrix<const float> a, Transpose tb, Matrix<const float> b,
                Matrix<float> c) override {
    loop_(c.rows, c.columns, Product{ta == Transpose::kYes, tb == Transpose::kYes, a, b, c});
  }

 private:
  CudaLoop loop_;
};

CudaLoop loop_of(Device& device) { return {static_cast<CudaDevice*>(&device)}; }

}  // namespace

std::unique_ptr<Operations> make_cuda_operations(Device& device) {
  return std::make_unique<Elementwise<CudaLoop>>(loop_of(device));
}

std::unique_ptr<Gemm> make_cuda_reference_gemm(Device& device) {
  return std::make_unique<CudaReferenceGemm>(loop_of(device));
}

}  // namespace compute
