// Gradients that travel as one byte an element, and a scale for each 256.
//
// As the bf16 hook: each replica sums one part from all others and sends the sum out, so there are
// two roundings, and each keeps what it lost for the next step: the sender of its whole gradient,
// the summing replica of its part. What a step leaves out, a later one adds. Done on the host,
// whose bytes a View of bf16 pairs carries.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "treering/parallel/parameters.hpp"

#include "parallel/try.hpp"

namespace tr::par {
namespace {

constexpr std::size_t kBlock = 256;
using Bytes = std::vector<std::int8_t>;
using Floats = std::vector<float>;

// Scales first, then a byte an element, then a byte more where they are odd.
std::size_t packed_bytes(std::size_t elements) {
  const std::size_t blocks = (elements + kBlock - 1) / kBlock;
  return blocks * sizeof(float) + elements + elements % 2;
}

// Packs values + residual; residual becomes what that lost.
void pack(const float* values, float* residual, std::size_t elements, std::int8_t* to) {
  const std::size_t blocks = (elements + kBlock - 1) / kBlock;
  std::int8_t* codes = to + blocks * sizeof(float);
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t first = b * kBlock, last = std::min(first + kBlock, elements);
    float largest = 0.0f;
    bool is_finite = true;
    for (std::size_t i = first; i < last; ++i) {
      residual[i] += values[i];
      largest = std::max(largest, std::fabs(residual[i]));
      is_finite = is_finite && std::isfinite(residual[i]);
    }
    // A NaN or an infinity makes the whole block NaN: bytes have none, and all replicas are to
    // notice. Nothing of it is kept.
    const float scale = is_finite ? largest / 127.0f : std::nanf("");
    std::memcpy(to + b * sizeof scale, &scale, sizeof scale);
    for (std::size_t i = first; i < last; ++i) {
      codes[i] = scale > 0.0f ? static_cast<std::int8_t>(std::lrint(residual[i] / scale)) : 0;
      residual[i] = is_finite ? residual[i] - static_cast<float>(codes[i]) * scale : 0.0f;
    }
  }
}

template <class Take>
void unpack(const std::int8_t* from, std::size_t elements, const Take& take) {
  const std::int8_t* codes = from + (elements + kBlock - 1) / kBlock * sizeof(float);
  for (std::size_t i = 0; i < elements; ++i) {
    float scale = 0.0f;
    std::memcpy(&scale, from + i / kBlock * sizeof scale, sizeof scale);
    take(i, static_cast<float>(codes[i]) * scale);
  }
}

class Int8Hook final : public GradientHook {
 public:
  const char* name() const override { return "int8"; }

  Status reduce(Comm& dp, Compute& compute, int bucket, const View& gradient) override {
    if (dp.size() == 1) return {};
    const auto n = static_cast<std::size_t>(dp.size());
    const auto whole = static_cast<std::size_t>(gradient.elements());
    const std::size_t part = whole / n, bytes = packed_bytes(part);
    Residual& residual = residuals_[bucket];
    residual.sent.resize(whole);
    residual.summed.resize(part);

    TRY_ASSIGN(const Tensor single, make(compute, gradient.elements(), DType::kFloat32));
    TRY(compute.copy(gradient, single.view()));
    Floats values(whole);
    TRY(compute.download(single.view(), values.data()));
    TRY(compute.synchronize());
    Bytes packed(n * bytes);
    for (std::size_t q = 0; q < n; ++q) {
      pack(&values[q * part], &residual.sent[q * part], part, &packed[q * bytes]);
    }
    TRY(exchange(dp, compute, packed, bytes, true));
    Floats sum(part);
    for (std::size_t q = 0; q < n; ++q) {
      unpack(&packed[q * bytes], part, [&](std::size_t i, float x) { sum[i] += x; });
    }
    pack(sum.data(), residual.summed.data(), part,
         &packed[static_cast<std::size_t>(dp.rank()) * bytes]);
    TRY(exchange(dp, compute, packed, bytes, false));
    for (std::size_t q = 0; q < n; ++q) {
      unpack(&packed[q * bytes], part, [&](std::size_t i, float x) { values[q * part + i] = x; });
    }
    TRY(compute.upload(values.data(), single.view()));
    TRY(compute.copy(single.view(), gradient));
    return compute.synchronize();
  }

  // Of each bucket: its number, two lengths, the numbers themselves.
  std::string state() const override {
    std::string bytes;
    for (const auto& [bucket, residual] : residuals_) {
      const std::uint64_t head[] = {static_cast<std::uint64_t>(bucket), residual.sent.size(),
                                    residual.summed.size()};
      bytes.append(reinterpret_cast<const char*>(head), sizeof head);
      for (const Floats* part : {&residual.sent, &residual.summed}) {
        bytes.append(reinterpret_cast<const char*>(part->data()), part->size() * sizeof(float));
      }
    }
    return bytes;
  }
  Status restore(const std::string& state) override {
    std::map<int, Residual> read;
    for (std::size_t at = 0; at < state.size();) {
      std::uint64_t head[3] = {};
      const auto left = [&] { return (state.size() - at) / sizeof(float); };
      const bool has_head = state.size() - at >= sizeof head;
      if (has_head) std::memcpy(head, &state[at], sizeof head);
      at += has_head ? sizeof head : 0;
      if (!has_head || head[1] > left() || head[2] > left() - head[1]) {
        return Error{TR_INVALID_ARGUMENT, "what the int8 hook has kept is cut short"};
      }
      Residual& residual = read[static_cast<int>(head[0])];
      residual.sent.resize(head[1]);
      residual.summed.resize(head[2]);
      for (Floats* part : {&residual.sent, &residual.summed}) {
        if (part->empty()) continue;
        std::memcpy(part->data(), &state[at], part->size() * sizeof(float));
        at += part->size() * sizeof(float);
      }
    }
    residuals_ = std::move(read);
    return {};
  }

 private:
  struct Residual {
    Floats sent, summed;
  };

  static Result<Tensor> make(Compute& compute, std::int64_t elements, DType type) {
    return Tensor::make(compute.memory(), Use::kBuffers, 1, elements, type);
  }

  // Every part to its replica, or this replica's part to all.
  static Status exchange(Comm& dp, Compute& compute, Bytes& packed, std::size_t part_bytes,
                         bool scatter) {
    const auto pairs = static_cast<std::int64_t>(packed.size() / 2);
    const auto part = static_cast<std::int64_t>(part_bytes / 2);
    TRY_ASSIGN(const Tensor from, make(compute, pairs, DType::kBFloat16));
    TRY_ASSIGN(const Tensor to, make(compute, pairs, DType::kBFloat16));
    TRY(compute.upload(packed.data(), from.view()));
    const View mine = from.view().columns(dp.rank() * part, part);
    TRY_ASSIGN(const Comm::Mark mark,
               scatter ? dp.all_to_all(from.view(), to.view()) : dp.all_gather(mine, to.view()));
    TRY(dp.wait(mark));
    TRY(compute.download(to.view(), packed.data()));
    return compute.synchronize();
  }

  std::map<int, Residual> residuals_;  // by bucket
};

}  // namespace

std::unique_ptr<GradientHook> make_int8_hook() { return std::make_unique<Int8Hook>(); }

}  // namespace tr::par
