// Gradients that travel as bf16: half the bytes.
//
// Each replica sums one part, in fp32 and rank order, from what all others sent of it; the sum is
// rounded once more where it goes out. (A ring in bf16 would round at every hop.)
#include "treering/parallel/parameters.hpp"

#include "parallel/try.hpp"

namespace tr::par {
namespace {

class Bf16Hook final : public GradientHook {
 public:
  const char* name() const override { return "bf16"; }

  Status reduce(Comm& dp, Compute& compute, int, const View& gradient) override {
    if (dp.size() == 1) return {};
    const std::int64_t whole = gradient.elements(), part = whole / dp.size();
    const auto make = [&](std::int64_t elements, DType type) {
      return Tensor::make(compute.memory(), Use::kBuffers, 1, elements, type);
    };
    TRY_ASSIGN(const Tensor rounded, make(whole, DType::kBFloat16));
    TRY_ASSIGN(const Tensor parts, make(whole, DType::kBFloat16));
    TRY_ASSIGN(const Tensor sum, make(part, gradient.type));
    TRY_ASSIGN(const Tensor one, make(part, gradient.type));
    TRY(compute.copy(gradient, rounded.view()));
    TRY_ASSIGN(const Comm::Mark parted, dp.all_to_all(rounded.view(), parts.view()));
    TRY(dp.wait(parted));
    TRY(compute.fill(sum.view(), 0.0));
    for (int q = 0; q < dp.size(); ++q) {
      TRY(compute.copy(parts.view().columns(q * part, part), one.view()));
      TRY(compute.add(one.view(), sum.view()));
    }
    const View mine = rounded.view().columns(dp.rank() * part, part);
    TRY(compute.copy(sum.view(), mine));
    TRY_ASSIGN(const Comm::Mark gathered, dp.all_gather(mine, rounded.view()));
    TRY(dp.wait(gathered));
    return compute.copy(rounded.view(), gradient);
  }
};

}  // namespace

std::unique_ptr<GradientHook> make_bf16_hook() { return std::make_unique<Bf16Hook>(); }

}  // namespace tr::par
