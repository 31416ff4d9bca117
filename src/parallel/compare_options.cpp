#include "parallel/compare_options.hpp"

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "parallel/digest.hpp"
#include "parallel/host_gather.hpp"
#include "parallel/try.hpp"

namespace tr::par {
namespace {

// Values, apart and exact.
template <class... T>
std::string text_of(const T&... values) {
  std::ostringstream out;
  out.precision(17);
  ((out << values << ';'), ...);
  return out.str();
}

std::string text_of(const Model& model) {
  std::string text = text_of(static_cast<int>(model.loss()), model.is_sequence_parallel());
  for (const LayerSpec& l : model.layers()) {
    text += text_of(l.in, l.out, l.has_bias, l.has_norm, static_cast<int>(l.activation), l.dropout,
                    static_cast<int>(l.split), l.positions);
  }
  return text;
}

std::string text_of(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += text_of(number);
  return text;
}

std::vector<std::pair<const char*, std::string>> parts_of(const Model& model,
                                                          const TrainerOptions& o) {
  const OptimizerOptions& p = o.optimizer;
  return {
      {"mesh", text_of(o.mesh.dp, o.mesh.pp, o.mesh.tp)},
      {"model", text_of(model)},
      {"schedule", text_of(o.schedule, o.stages_per_rank, o.schedule_csv)},
      {"stage_layers", text_of(o.stage_layers)},
      {"micro-batches", text_of(o.micro_batch, o.micro_batches)},
      {"type", text_of(name_of(o.type))},
      {"ZeRO stage", text_of(o.zero)},
      {"buckets", text_of(o.bucket_bytes, o.first_bucket_bytes)},
      {"overlap", text_of(o.overlap, o.tp_chunks)},
      {"recompute", text_of(static_cast<int>(o.recompute))},
      {"compression", o.hook == nullptr ? "none" : o.hook->name()},
      {"optimizer", text_of(p.is_adamw, p.adamw.lr, p.adamw.beta1, p.adamw.beta2, p.adamw.eps,
                            p.adamw.weight_decay, p.sgd_lr, p.sgd_momentum)},
      {"loss scale", text_of(o.scaler.scale(), o.scaler.is_on())},
      {"clip_norm", text_of(o.clip_norm)},
      {"rank_order", text_of(o.rank_order)},
      {"check_finite", text_of(o.check_finite)},
      {"seed", text_of(o.seed)},
  };
}

}  // namespace

Status compare_options(Comm& world, Compute& compute, const Model& model,
                       const TrainerOptions& options) {
  const auto parts = parts_of(model, options);
  std::vector<double> digests;
  for (const auto& [name, text] : parts) digests.push_back(digest_of(text));
  TRY_ASSIGN(const std::vector<double> all, gather_over(world, compute, digests));
  for (std::size_t i = parts.size(); i < all.size(); ++i) {
    const std::size_t part = i % parts.size();
    if (all[i] == all[part]) continue;
    return Error{TR_MISMATCH, "rank " + std::to_string(i / parts.size()) + " has another " +
                                  parts[part].first +
                                  " than rank 0; all ranks of a training are given the same"};
  }
  return {};
}

}  // namespace tr::par
