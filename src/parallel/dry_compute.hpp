// Compute without arithmetic and memory: it checks shapes, and counts what would be allocated.
#pragma once

#include "treering/parallel/compute.hpp"

#include "parallel/checks.hpp"
#include "parallel/host_memory.hpp"

namespace tr::par {

class DryCompute : public Compute {
 public:
  const char* name() const override { return "dry"; }
  Memory& memory() override { return memory_; }
  bool outputs_are_independent() const override { return true; }
  bool is_dry() const override { return true; }
  Status synchronize() override { return {}; }

  Status fill(const View& to, double) override { return check_views("fill", {to}); }
  Status copy(const View& from, const View& to) override {
    return check_same("copy", {from, to}, false);
  }
  Status add(const View& from, const View& to) override { return check_same("add", {from, to}); }
  Status scale(const View& x, double) override { return check_views("scale", {x}); }
  Status upload(const void*, const View& to) override { return check_views("upload", {to}); }
  Status download(const View& from, void* to) override;  // zeros

  Status multiply(Transpose ta, Transpose tb, const View& a, const View& b, const View& c,
                  Update update) override {
    return check_product({ta, tb, a, b, c, update});
  }
  Status add_row(const View& row, const View& x) override { return check_row("add_row", row, x); }
  Status sum_rows(const View& x, const View& row, Update) override {
    return check_row("sum_rows", row, x);
  }

  Status activate(Activation, const View& z, const View& a) override {
    return check_same("activate", {z, a});
  }
  Status activate_backward(Activation, const View& z, const View& da, const View& dz) override {
    return check_same("activate_backward", {z, da, dz});
  }
  Status layer_norm(const View& x, const View& gamma, const View& beta, const View& y,
                    const View& stats) override {
    return check_norm(x, gamma, beta, y, stats);
  }
  Status layer_norm_backward(const View& x, const View& gamma, const View& stats, const View& dy,
                             const View& dx, const View& dgamma, const View& dbeta,
                             Update) override {
    return check_norm_backward(x, gamma, stats, dy, dx, dgamma, dbeta);
  }
  Status dropout(const DropoutKey& key, const View& x, const View& y) override {
    return check_dropout(key, x, y);
  }

  // A loss of 0; labels may be missing.
  Result<Score> cross_entropy(const View& logits, std::span<const std::int32_t>, double normalizer,
                              double, const View& dlogits) override;
  Result<Score> mean_square(const View& outputs, double normalizer, double,
                            const View& doutputs) override;
  Result<double> sum_of_squares(const View&) override { return 0.0; }
  Result<std::optional<std::int64_t>> find_not_finite(const View&) override {
    return std::optional<std::int64_t>();
  }

  Status adamw(const AdamWOptions&, std::int64_t, const View& gradient, const View& m,
               const View& v, const View& master) override {
    return check_step("adamw", {gradient, m, v, master});
  }
  Status sgd(double, double, const View& gradient, const View& velocity,
             const View& master) override {
    return check_step("sgd", {gradient, velocity, master});
  }

 private:
  DryMemory memory_;
};

}  // namespace tr::par
