#include "treering/parallel/simulated.hpp"

namespace tr::par {
namespace {

class SimulatedCompute final : public Compute {
 public:
  SimulatedCompute(Compute& inner, SimulatedClock& clock, double flops_per_us, Trace* trace)
      : inner_(inner), clock_(clock), flops_per_us_(flops_per_us), trace_(trace) {}

  Status multiply(Transpose ta, Transpose tb, const View& a, const View& b, const View& c,
                  Update update) override {
    const double begin = clock_.now_us();
    const std::int64_t k = ta == Transpose::kYes ? a.rows : a.cols;
    clock_.advance(2.0 * static_cast<double>(c.rows) * static_cast<double>(c.cols) *
                   static_cast<double>(k) / flops_per_us_);
    if (trace_ != nullptr) trace_->add({Row::kCompute, "multiply", begin, clock_.now_us()});
    return inner_.multiply(ta, tb, a, b, c, update);
  }

  // All else is the inner one's.
  const char* name() const override { return inner_.name(); }
  Memory& memory() override { return inner_.memory(); }
  bool outputs_are_independent() const override { return inner_.outputs_are_independent(); }
  bool is_dry() const override { return inner_.is_dry(); }
  std::optional<void*> stream() const override { return inner_.stream(); }
  Status synchronize() override { return inner_.synchronize(); }
  Status fill(const View& to, double value) override { return inner_.fill(to, value); }
  Status copy(const View& from, const View& to) override { return inner_.copy(from, to); }
  Status add(const View& from, const View& to) override { return inner_.add(from, to); }
  Status scale(const View& x, double factor) override { return inner_.scale(x, factor); }
  Status upload(const void* from, const View& to) override { return inner_.upload(from, to); }
  Status download(const View& from, void* to) override { return inner_.download(from, to); }
  Status add_row(const View& row, const View& x) override { return inner_.add_row(row, x); }
  Status sum_rows(const View& x, const View& row, Update update) override {
    return inner_.sum_rows(x, row, update);
  }
  Status activate(Activation kind, const View& z, const View& a) override {
    return inner_.activate(kind, z, a);
  }
  Status activate_backward(Activation kind, const View& z, const View& da,
                           const View& dz) override {
    return inner_.activate_backward(kind, z, da, dz);
  }
  Status layer_norm(const View& x, const View& gamma, const View& beta, const View& y,
                    const View& stats) override {
    return inner_.layer_norm(x, gamma, beta, y, stats);
  }
  Status layer_norm_backward(const View& x, const View& gamma, const View& stats, const View& dy,
                             const View& dx, const View& dgamma, const View& dbeta,
                             Update update) override {
    return inner_.layer_norm_backward(x, gamma, stats, dy, dx, dgamma, dbeta, update);
  }
  Status dropout(const DropoutKey& key, const View& x, const View& y) override {
    return inner_.dropout(key, x, y);
  }
  Result<Score> cross_entropy(const View& logits, std::span<const std::int32_t> labels,
                              double normalizer, double factor, const View& dlogits) override {
    return inner_.cross_entropy(logits, labels, normalizer, factor, dlogits);
  }
  Result<Score> mean_square(const View& outputs, double normalizer, double factor,
                            const View& doutputs) override {
    return inner_.mean_square(outputs, normalizer, factor, doutputs);
  }
  Result<double> sum_of_squares(const View& x) override { return inner_.sum_of_squares(x); }
  Result<std::optional<std::int64_t>> find_not_finite(const View& x) override {
    return inner_.find_not_finite(x);
  }
  Status adamw(const AdamWOptions& options, std::int64_t step, const View& gradient, const View& m,
               const View& v, const View& master) override {
    return inner_.adamw(options, step, gradient, m, v, master);
  }
  Status sgd(double lr, double momentum, const View& gradient, const View& velocity,
             const View& master) override {
    return inner_.sgd(lr, momentum, gradient, velocity, master);
  }

 private:
  Compute& inner_;
  SimulatedClock& clock_;
  double flops_per_us_;
  Trace* trace_;
};

}  // namespace

std::unique_ptr<Compute> simulate_compute(Compute& inner, SimulatedClock& clock,
                                          double flops_per_us, Trace* trace) {
  return std::make_unique<SimulatedCompute>(inner, clock, flops_per_us, trace);
}

}  // namespace tr::par
