#include "parallel/cuda_compute.hpp"

#include <string>

#include "parallel/checks.hpp"
#include "parallel/cuda_status.hpp"
#include "parallel/try.hpp"

namespace tr::par {

Result<std::unique_ptr<Compute>> make_cuda_compute(std::string_view gemm, int local_rank) {
  return CudaCompute::make(gemm, local_rank);
}

Result<std::unique_ptr<Compute>> CudaCompute::make(std::string_view gemm, int local_rank) {
  std::unique_ptr<CudaCompute> made(new CudaCompute);
  TRY(made->open(gemm, local_rank));
  return std::unique_ptr<Compute>(std::move(made));
}

Status CudaCompute::open(std::string_view gemm, int local_rank) {
  if (gemm != "auto" && gemm != "ref" && gemm != "cublas") {
    return Error{TR_INVALID_ARGUMENT, "there are no matrix products named '" + std::string(gemm) +
                                          "' on a GPU: auto, ref, cublas"};
  }
  int devices = 0;
  TRY(cuda_status(cudaGetDeviceCount(&devices), "looking for a GPU"));
  if (devices == 0) return Error{TR_UNSUPPORTED, "there is no GPU"};
  TRY(cuda_status(cudaSetDevice(local_rank % devices), "choosing a GPU"));
  // Not the default stream, which would wait for the kernels of collectives.
  TRY(cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"));
  if (gemm != "ref") {
    Result<std::unique_ptr<CudaGemm>> made = make_cublas_gemm(stream_, memory_);
    if (made) {
      gemm_ = std::move(made).value();
    } else if (gemm == "cublas") {
      return made.error();
    }
  }
  if (gemm_ == nullptr) gemm_ = make_cuda_reference_gemm(stream_);
  return {};
}

CudaCompute::~CudaCompute() {
  if (stream_ == nullptr) return;
  (void)cudaStreamSynchronize(stream_);
  gemm_.reset();
  (void)cudaStreamDestroy(stream_);
}

Status CudaCompute::synchronize() {
  return cuda_status(cudaStreamSynchronize(stream_), "waiting for the GPU");
}

Status CudaCompute::upload(const void* from, const View& to) {
  TRY(check_views("upload", {to}));
  if (to.is_empty()) return {};
  if (!to.is_contiguous()) {
    TRY_ASSIGN(const Tensor whole, Tensor::make(memory_, Use::kBuffers, to.rows, to.cols, to.type));
    TRY(upload(from, whole.view()));
    return copy(whole.view(), to);
  }
  TRY(cuda_status(cudaMemcpyAsync(to.data, from, to.bytes(), cudaMemcpyHostToDevice, stream_),
                  "copying to the GPU"));
  return synchronize();
}

Status CudaCompute::download(const View& from, void* to) {
  TRY(check_views("download", {from}));
  if (from.is_empty()) return {};
  if (!from.is_contiguous()) {
    TRY_ASSIGN(const Tensor whole,
               Tensor::make(memory_, Use::kBuffers, from.rows, from.cols, from.type));
    TRY(copy(from, whole.view()));
    return download(whole.view(), to);
  }
  TRY(cuda_status(cudaMemcpyAsync(to, from.data, from.bytes(), cudaMemcpyDeviceToHost, stream_),
                  "copying from the GPU"));
  return synchronize();
}

Status CudaCompute::multiply(Transpose ta, Transpose tb, const View& a, const View& b,
                             const View& c, Update update) {
  const Product product{ta, tb, a, b, c, update};
  TRY(check_product(product));
  return gemm_->multiply(product);
}

Result<Tensor> CudaCompute::upload_labels(std::span<const std::int32_t> labels) {
  static_assert(sizeof(std::int32_t) == size_of(DType::kFloat32));
  TRY_ASSIGN(Tensor there, Tensor::make(memory_, Use::kBuffers, 1,
                                        static_cast<std::int64_t>(labels.size()), DType::kFloat32));
  TRY(upload(labels.data(), there.view()));
  return there;
}

Result<std::vector<double>> CudaCompute::download_numbers(const Tensor& numbers) {
  std::vector<double> here(static_cast<std::size_t>(numbers.view().elements()));
  TRY(download(numbers.view(), here.data()));
  return here;
}

}  // namespace tr::par
