// A store's birth: what replicas must agree on, memory, first values.
#include <cstdio>

#include "parallel/digest.hpp"
#include "parallel/host_gather.hpp"
#include "parallel/parameter_store.hpp"
#include "parallel/try.hpp"

namespace tr::par {
namespace {

std::string text_of(const ParameterSpec& p) {
  return p.name() + ", " + std::to_string(p.rows) + " x " + std::to_string(p.cols) + " " +
         name_of(p.layout);
}

// Everything that makes replicas compute or send different things.
std::string text_of(const StoreOptions& options) {
  const OptimizerOptions& o = options.optimizer;
  char text[400];
  std::snprintf(
      text, sizeof text,
      "zero %d, %s, buckets of %lld and %lld bytes, overlap %s, compression %s, %s lr %g, "
      "%s %g, %g, %g, %g",
      options.zero, name_of(options.type), static_cast<long long>(options.first_bucket_bytes),
      static_cast<long long>(options.bucket_bytes), options.overlap ? "on" : "off",
      options.hook == nullptr ? "none" : options.hook->name(), o.is_adamw ? "adamw" : "sgd",
      o.is_adamw ? o.adamw.lr : o.sgd_lr, o.is_adamw ? "betas, eps, decay" : "momentum",
      o.is_adamw ? o.adamw.beta1 : o.sgd_momentum, o.adamw.beta2, o.adamw.eps,
      o.adamw.weight_decay);
  return text;
}

// The first replica whose `index`th of `count` values is not replica 0's; 0: none.
int first_other(const std::vector<double>& all, std::size_t count, std::size_t index) {
  for (std::size_t q = 1; q * count < all.size(); ++q) {
    if (all[q * count + index] != all[index]) return static_cast<int>(q);
  }
  return 0;
}

Error mismatch(int other, const std::string& what) {
  return {TR_MISMATCH, "replicas 0 and " + std::to_string(other) + " differ in " + what};
}

}  // namespace

Status GradientHook::restore(const std::string& state) {
  if (state.empty()) return {};
  return Error{TR_INVALID_ARGUMENT, std::string("hook ") + name() + " keeps nothing"};
}

Result<std::unique_ptr<ParameterStore>> ParameterStore::create(Comm& dp, Comm& tp, Compute& compute,
                                                               const Model& model,
                                                               std::vector<ParameterSpec> mine,
                                                               const StoreOptions& options) {
  auto store = std::make_unique<BucketStore>(dp, tp, compute, model, std::move(mine), options);
  TRY(store->start());
  return std::unique_ptr<ParameterStore>(std::move(store));
}

Status BucketStore::check_options() const {
  const auto invalid = [](const std::string& what) { return Error{TR_INVALID_ARGUMENT, what}; };
  if (options_.zero < 0 || options_.zero > 3) {
    return invalid("zero is 0, 1, 2 or 3, not " + std::to_string(options_.zero));
  }
  if (options_.hook != nullptr && options_.zero != 0) {
    return invalid(std::string("gradient compression (") + options_.hook->name() +
                   ") works with zero 0 only, not with zero " + std::to_string(options_.zero));
  }
  for (const ParameterSpec& p : mine_) {
    if (p.layer < 0 || p.layer >= static_cast<int>(model_.layers().size())) {
      return invalid(p.name() + " is of no layer of the model");
    }
    if (p.layout == Layout::kPartial) return invalid(p.name() + " cannot be a partial sum");
  }
  return {};
}

Status BucketStore::start() {
  TRY_ASSIGN(control_, dp_.split(std::vector<int>(static_cast<std::size_t>(dp_.size()))));
  TRY(check_replicas_agree());
  TRY(check_options());
  TRY_ASSIGN(std::vector<BucketLayout> layouts,
             make_buckets(mine_, dp_.size(), tp_.size(), options_));
  for (BucketLayout& layout : layouts) {
    infos_.push_back(layout.info);
    buckets_.emplace_back().layout = std::move(layout);
  }
  for (Bucket& bucket : buckets_) {
    TRY(allocate(bucket));
    for (const int layer : bucket.layout.info.layers) by_layer_[layer] = &bucket;
    for (const Place& place : bucket.layout.places) {
      by_number_[mine_[place.index].number] = {&bucket, &place};
    }
  }
  return begin_next_step();
}

Status BucketStore::check_replicas_agree() {
  const std::string options = text_of(options_);
  const double heads[] = {static_cast<double>(mine_.size()), digest_of(options)};
  TRY_ASSIGN(std::vector<double> all, gather_over(*control_, compute_, heads));
  if (const int other = first_other(all, 2, 0)) {
    return mismatch(other, "how many parameters they have: here " + std::to_string(mine_.size()));
  }
  if (const int other = first_other(all, 2, 1)) {
    return mismatch(other, "the options of their stores: here " + options);
  }
  std::vector<double> digests;
  for (const ParameterSpec& p : mine_) {
    digests.push_back(digest_of(text_of(p) + " " + std::to_string(p.number) +
                                (p.gradient_is_partial ? " partial" : "")));
  }
  TRY_ASSIGN(all, gather_over(*control_, compute_, digests));
  for (std::size_t i = 0; i < mine_.size(); ++i) {
    if (const int other = first_other(all, mine_.size(), i)) {
      return mismatch(other, "parameter " + std::to_string(i) + ": here " + text_of(mine_[i]));
    }
  }
  return {};
}

Status BucketStore::allocate(Bucket& bucket) {
  const std::int64_t whole = bucket.layout.info.padded_elements, slice = my_slice(bucket).count;
  const auto add = [&](Tensor& to, Use use, std::int64_t elements, DType type) -> Status {
    TRY_ASSIGN(to, make(use, elements, type));
    return compute_.fill(to.view(), 0.0);
  };
  const bool is_cut = options_.zero == 3, keeps_gradients = options_.zero <= 1;
  TRY(add(bucket.parameters, Use::kParameters, is_cut ? slice : whole, options_.type));
  TRY(keeps_gradients ? add(bucket.gradients, Use::kGradients, whole, wide_)
                      : add(bucket.gradient_slice, Use::kGradients, slice, wide_));
  if (options_.type != wide_) TRY(add(bucket.master, Use::kOptimizer, slice, wide_));
  TRY(add(bucket.m, Use::kOptimizer, slice, wide_));
  if (options_.optimizer.is_adamw) TRY(add(bucket.v, Use::kOptimizer, slice, wide_));
  // What is reduced or gathered where it lies, step after step.
  if (keeps_gradients && options_.hook == nullptr) {
    TRY_ASSIGN(bucket.gradients_held, dp_.register_memory(bucket.gradients.view()));
  }
  if (options_.zero == 1 || options_.zero == 2) {
    TRY_ASSIGN(bucket.parameters_held, dp_.register_memory(bucket.parameters.view()));
  }
  return {};
}

BucketStore::Slice BucketStore::slice_of(const Bucket& bucket, int replica) const {
  const std::int64_t whole = bucket.layout.info.padded_elements;
  if (!is_sharded()) return {0, whole};
  const std::int64_t each = whole / dp_.size();
  return {replica * each, each};
}

View BucketStore::parameter_slice(const Bucket& bucket) const {
  const Slice slice = my_slice(bucket);
  const View& all = bucket.parameters.view();
  return options_.zero == 3 ? all : all.columns(slice.first, slice.count);
}

View BucketStore::gradient_slice(const Bucket& bucket) const {
  if (options_.zero >= 2) return bucket.gradient_slice.view();
  const Slice slice = my_slice(bucket);
  return bucket.gradients.view().columns(slice.first, slice.count);
}

View BucketStore::master(const Bucket& bucket) const {
  return bucket.master.is_empty() ? parameter_slice(bucket) : bucket.master.view();
}

Status BucketStore::initialize(std::uint64_t seed) {
  if (compute_.is_dry()) return {};
  for (Bucket& bucket : buckets_) {
    for (const Place& place : bucket.layout.places) TRY(initialize_one(bucket, place, seed));
  }
  return {};
}

// Every rank computes what it keeps: nothing is sent.
Status BucketStore::initialize_one(Bucket& bucket, const Place& place, std::uint64_t seed) {
  const ParameterSpec& p = mine_[place.index];
  std::vector<double> values(static_cast<std::size_t>(place.elements));
  const LayerSpec& layer = model_.layers()[static_cast<std::size_t>(p.layer)];
  par::initialize(p, layer, seed, tp_.rank(), tp_.size(), values.data());
  TRY_ASSIGN(const Tensor exact, make(Use::kBuffers, place.elements, DType::kFloat64));
  TRY_ASSIGN(const Tensor wide, make(Use::kBuffers, place.elements, wide_));
  TRY(compute_.upload(values.data(), exact.view()));
  TRY(compute_.copy(exact.view(), wide.view()));
  // [first, last) of the parameter lies in my slice.
  const Slice slice = my_slice(bucket);
  const std::int64_t first = std::max(slice.first - place.first, std::int64_t{0});
  const std::int64_t last = std::min(slice.first + slice.count - place.first, place.elements);
  if (first < last) {
    const View from = wide.view().columns(first, last - first);
    const std::int64_t at = place.first + first - slice.first;
    TRY(compute_.copy(from, master(bucket).columns(at, last - first)));
    TRY(compute_.copy(from, parameter_slice(bucket).columns(at, last - first)));
  }
  if (options_.zero == 1 || options_.zero == 2) {
    const View to = bucket.parameters.view().columns(place.first, place.elements);
    TRY(compute_.copy(wide.view(), to));
  }
  return compute_.synchronize();  // values end here
}

}  // namespace tr::par
