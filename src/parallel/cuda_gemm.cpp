// Matrix products by cuBLAS: no TF32, sums in the accumulator's type.
#include "parallel/cuda_gemm.hpp"

#include <algorithm>
#include <string>

#include "parallel/cuda_blas.hpp"
#include "parallel/cuda_status.hpp"
#include "parallel/try.hpp"

namespace tr::par {
namespace {

int blas_type(DType type) {
  switch (type) {
    case DType::kFloat64:
      return CudaBlas::kFloat64;
    case DType::kBFloat16:
      return CudaBlas::kBFloat16;
    case DType::kFloat16:
      return CudaBlas::kFloat16;
    case DType::kFloat32:
      break;
  }
  return CudaBlas::kFloat32;
}
int blas_op(Transpose transpose) {
  return transpose == Transpose::kYes ? CudaBlas::kTransposed : CudaBlas::kPlain;
}
// cuBLAS takes no leading dimension of 0.
int leading(const View& view) { return static_cast<int>(std::max<std::int64_t>(view.stride, 1)); }

class CublasGemm final : public CudaGemm {
 public:
  CublasGemm(const CudaBlas& blas, cudaStream_t stream, Memory& memory)
      : blas_(blas), stream_(stream), memory_(memory) {}
  ~CublasGemm() override {
    if (handle_ != nullptr) (void)blas_.destroy(handle_);
  }
  Status open() {
    TRY(status(blas_.create(&handle_), "cublasCreate"));
    return status(blas_.set_stream(handle_, stream_), "cublasSetStream");
  }

  const char* name() const override { return "cublas"; }
  bool outputs_are_independent() const override { return false; }

  // Straight into c where nothing is added. Else by way of `sums`: what beta = 1 adds to, and when,
  // is not ours to say.
  Status multiply(const Product& p) override {
    if (p.c.is_empty()) return {};
    if (p.update == Update::kOverwrite && p.k() > 0) return run(p, p.c);
    TRY_ASSIGN(const Tensor sums,
               Tensor::make(memory_, Use::kBuffers, p.m(), p.n(), accumulator_of(p.c.type)));
    if (p.k() > 0) {
      TRY(run(p, sums.view()));
    } else {
      TRY(cuda_status(cudaMemsetAsync(sums.view().data, 0, sums.view().bytes(), stream_),
                      "clearing memory"));
    }
    return cuda_store_sums(stream_, sums.view(), p.c, p.update);
  }

 private:
  // cuBLAS's matrices lie column after column: what is row-major here is its transpose there, and
  // that of c is the product of the transposes in the other order.
  Status run(const Product& p, const View& c) {
    const bool is_double = p.a.type == DType::kFloat64;
    const float one = 1.0f, zero = 0.0f;
    const double one64 = 1.0, zero64 = 0.0;
    const void* alpha = is_double ? static_cast<const void*>(&one64) : &one;
    const void* beta = is_double ? static_cast<const void*>(&zero64) : &zero;
    return status(blas_.gemm(handle_, blas_op(p.tb), blas_op(p.ta), static_cast<int>(p.n()),
                             static_cast<int>(p.m()), static_cast<int>(p.k()), alpha, p.b.data,
                             blas_type(p.b.type), leading(p.b), p.a.data, blas_type(p.a.type),
                             leading(p.a), beta, c.data, blas_type(c.type), leading(c),
                             is_double ? CudaBlas::kComputeFloat64 : CudaBlas::kComputeFloat32,
                             CudaBlas::kDefaultAlgorithm),
                  "cublasGemmEx");
  }
  Status status(int code, const char* what) const {
    if (code == CudaBlas::kSuccess) return {};
    return Error{TR_SYSTEM_ERROR, std::string(what) + ": " + blas_.words(code)};
  }

  CudaBlas blas_;
  cudaStream_t stream_;
  Memory& memory_;
  CudaBlas::Handle handle_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<CudaGemm>> make_cublas_gemm(cudaStream_t stream, Memory& memory) {
  TRY_ASSIGN(const CudaBlas blas, load_cuda_blas());
  auto gemm = std::make_unique<CublasGemm>(blas, stream, memory);
  TRY(gemm->open());
  return std::unique_ptr<CudaGemm>(std::move(gemm));
}

}  // namespace tr::par
