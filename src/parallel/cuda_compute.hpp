// Compute on a GPU. What touches elements is in cuda_elements.cu and cuda_rows.cu, kernels of the
// host's arithmetic (elements.hpp, rows.hpp); the rest is in cuda_compute.cpp.
#pragma once

#include <cuda_runtime.h>
#include <memory>
#include <vector>

#include "treering/parallel/compute.hpp"

#include "parallel/cuda_gemm.hpp"
#include "parallel/cuda_memory.hpp"

namespace tr::par {

class CudaCompute final : public Compute {
 public:
  static Result<std::unique_ptr<Compute>> make(std::string_view gemm, int local_rank);
  ~CudaCompute() override;
  const char* name() const override { return gemm_->name(); }
  Memory& memory() override { return memory_; }
  bool outputs_are_independent() const override { return gemm_->outputs_are_independent(); }
  std::optional<void*> stream() const override { return stream_; }
  Status synchronize() override;

  Status fill(const View& to, double value) override;
  Status copy(const View& from, const View& to) override;
  Status add(const View& from, const View& to) override;
  Status scale(const View& x, double factor) override;
  Status upload(const void* from, const View& to) override;
  Status download(const View& from, void* to) override;

  Status multiply(Transpose ta, Transpose tb, const View& a, const View& b, const View& c,
                  Update update) override;
  Status add_row(const View& row, const View& x) override;
  Status sum_rows(const View& x, const View& row, Update update) override;

  Status activate(Activation kind, const View& z, const View& a) override;
  Status activate_backward(Activation kind, const View& z, const View& da, const View& dz) override;
  Status layer_norm(const View& x, const View& gamma, const View& beta, const View& y,
                    const View& stats) override;
  Status layer_norm_backward(const View& x, const View& gamma, const View& stats, const View& dy,
                             const View& dx, const View& dgamma, const View& dbeta,
                             Update update) override;
  Status dropout(const DropoutKey& key, const View& x, const View& y) override;

  Result<Score> cross_entropy(const View& logits, std::span<const std::int32_t> labels,
                              double normalizer, double factor, const View& dlogits) override;
  Result<Score> mean_square(const View& outputs, double normalizer, double factor,
                            const View& doutputs) override;
  Result<double> sum_of_squares(const View& x) override;
  Result<std::optional<std::int64_t>> find_not_finite(const View& x) override;

  Status adamw(const AdamWOptions& options, std::int64_t step, const View& gradient, const View& m,
               const View& v, const View& master) override;
  Status sgd(double lr, double momentum, const View& gradient, const View& velocity,
             const View& master) override;

 private:
  CudaCompute() = default;
  Status open(std::string_view gemm, int local_rank);
  // Numbers of the host, in device memory: of 4 bytes, in a tensor of fp32.
  Result<Tensor> upload_labels(std::span<const std::int32_t> labels);
  // What a kernel has left in a tensor of fp64.
  Result<std::vector<double>> download_numbers(const Tensor& numbers);

  cudaStream_t stream_ = nullptr;
  CudaMemory memory_;
  std::unique_ptr<CudaGemm> gemm_;
};

}  // namespace tr::par
