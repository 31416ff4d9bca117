// Matrix products by cuBLAS, in float32 (no TF32).
#include <string>

#include "compute/cuda.hpp"
#include "compute/cuda_blas.hpp"
#include "compute/cuda_device.hpp"

namespace compute {
namespace {

class CublasGemm final : public Gemm {
 public:
  CublasGemm(CudaDevice& device, const CudaBlas& blas) : device_(device), blas_(blas) {}
  ~CublasGemm() override {
    if (handle_ != nullptr) (void)blas_.destroy(handle_);
  }
  tr::Status open() {
    note(blas_.create(&handle_), "cublasCreate");
    if (handle_ != nullptr) note(blas_.set_stream(handle_, device_.stream()), "cublasSetStream");
    return device_.synchronize();
  }

  const char* name() const override { return "cublas"; }
  bool rows_are_independent() const override { return false; }

  // cuBLAS's matrices lie column after column: what is a row-major c there is its transpose, and
  // that is the product of the transposes in the other order.
  void multiply(Transpose ta, Matrix<const float> a, Transpose tb, Matrix<const float> b,
                Matrix<float> c) override {
    const int k = ta == Transpose::kYes ? a.rows : a.columns;
    if (c.size() == 0) return;
    if (k == 0) return device_.clear(c.data, c.size() * sizeof(float));
    const float one = 1.0f, zero = 0.0f;
    constexpr int kType = CudaBlas::kFloat32;
    note(blas_.gemm(handle_, op(tb), op(ta), c.columns, c.rows, k, &one, b.data, kType, b.columns,
                    a.data, kType, a.columns, &zero, c.data, kType, c.columns,
                    CudaBlas::kComputeFloat32, CudaBlas::kDefaultAlgorithm),
         "cublasGemmEx");
  }

 private:
  static int op(Transpose t) {
    return t == Transpose::kYes ? CudaBlas::kTransposed : CudaBlas::kPlain;
  }
  void note(int status, const char* what) {
    if (status == CudaBlas::kSuccess) return;
    device_.note(std::string(what) + ": " + blas_.words(status));
  }

  CudaDevice& device_;
  CudaBlas blas_;
  CudaBlas::Handle handle_ = nullptr;
};

}  // namespace

tr::Result<std::unique_ptr<Gemm>> make_cublas_gemm(Device& device) {
  auto blas = load_cuda_blas();
  if (!blas) return blas.error();
  auto gemm = std::make_unique<CublasGemm>(static_cast<CudaDevice&>(device), blas.value());
  if (auto s = gemm->open(); !s) return s.error();
  return std::unique_ptr<Gemm>(std::move(gemm));
}

}  // namespace compute
