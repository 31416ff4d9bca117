// Compute on the host. Loops over elements are in host_elements.cpp (element by element and along
// rows), host_norm.cpp, host_loss.cpp and host_optimizer.cpp; this class checks and calls them.
#pragma once

#include <memory>

#include "treering/parallel/compute.hpp"

#include "parallel/gemm.hpp"
#include "parallel/host_memory.hpp"

namespace tr::par {

class HostCompute : public Compute {
 public:
  explicit HostCompute(std::unique_ptr<Gemm> gemm) : gemm_(std::move(gemm)) {}
  const char* name() const override { return gemm_->name(); }
  Memory& memory() override { return memory_; }
  bool outputs_are_independent() const override { return gemm_->outputs_are_independent(); }
  Status synchronize() override { return {}; }

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
  HostMemory memory_;
  std::unique_ptr<Gemm> gemm_;
};

}  // namespace tr::par
