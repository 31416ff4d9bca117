#include "parallel/bucket_layout.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include "parallel/try.hpp"

namespace tr::par {
namespace {

using PlacesByLayer = std::map<int, std::vector<Place>, std::greater<>>;

Result<PlacesByLayer> places_by_layer(std::span<const ParameterSpec> mine, int tp) {
  PlacesByLayer layers;
  for (int i = 0; i < static_cast<int>(mine.size()); ++i) {
    const ParameterSpec& p = mine[i];
    Result<LocalShape> shape = local_shape(p.layout, p.rows, p.cols, tp);
    if (!shape) return Error{shape.error().code, p.name() + ": " + shape.error().message};
    const auto [rows, cols] = shape.value();
    layers[p.layer].push_back({i, rows, cols, 0, rows * cols, p.gradient_is_partial && tp > 1});
  }
  return layers;
}

void close(BucketLayout& bucket, int dp) {
  std::stable_partition(bucket.places.begin(), bucket.places.end(),
                        [](const Place& p) { return !p.is_partial; });
  std::int64_t at = 0;
  bucket.first_partial = bucket.info.elements;
  for (Place& place : bucket.places) {
    if (place.is_partial) bucket.first_partial = std::min(bucket.first_partial, at);
    place.first = at;
    at += place.elements;
  }
  bucket.info.padded_elements = (bucket.info.elements + dp - 1) / dp * dp;
}

}  // namespace

Result<std::vector<BucketLayout>> make_buckets(std::span<const ParameterSpec> mine, int dp, int tp,
                                               const StoreOptions& options) {
  TRY_ASSIGN(const PlacesByLayer layers, places_by_layer(mine, tp));
  const auto element_bytes = static_cast<std::int64_t>(size_of(accumulator_of(options.type)));
  std::vector<BucketLayout> buckets;
  for (const auto& [layer, places] : layers) {
    std::int64_t elements = 0;
    for (const Place& place : places) elements += place.elements;
    const std::int64_t cap =
        buckets.size() <= 1 ? options.first_bucket_bytes : options.bucket_bytes;
    const bool fits = options.zero != 3 && !buckets.empty() &&
                      (buckets.back().info.elements + elements) * element_bytes <= cap;
    if (!fits) buckets.emplace_back();
    BucketLayout& bucket = buckets.back();
    bucket.info.layers.push_back(layer);
    bucket.info.elements += elements;
    bucket.places.insert(bucket.places.end(), places.begin(), places.end());
  }
  for (BucketLayout& bucket : buckets) close(bucket, dp);
  return buckets;
}

Result<StoreMemory> predict_memory(std::span<const ParameterSpec> mine, int dp, int tp,
                                   const StoreOptions& options, bool accumulates) {
  TRY_ASSIGN(const std::vector<BucketLayout> buckets, make_buckets(mine, dp, tp, options));
  const DType wide = accumulator_of(options.type);
  const auto narrow_bytes = static_cast<std::int64_t>(size_of(options.type));
  const auto wide_bytes = static_cast<std::int64_t>(size_of(wide));
  std::int64_t all = 0;
  for (const BucketLayout& bucket : buckets) all += bucket.info.padded_elements;
  const int zero = options.zero;
  const auto share = [&](bool is_sharded) { return is_sharded ? all / dp : all; };
  // Masters, where parameters are not their own; momentum; AdamW's second moment.
  const int states = (options.type != wide) + 1 + options.optimizer.is_adamw;
  StoreMemory memory;
  memory.parameters = share(zero == 3) * narrow_bytes;
  memory.gradients = share(zero >= 2) * wide_bytes;
  memory.optimizer = share(zero >= 1) * wide_bytes * states;
  const bool are_early = options.overlap && !accumulates;
  // While the backward pass is in bucket b: its gradients and those on their way before it; its
  // parameters and those prefetched after it.
  const auto size = [&](std::size_t b) {
    return b < buckets.size() ? buckets[b].info.padded_elements : 0;
  };
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    std::int64_t now = 0;
    if (zero >= 2) now += (are_early ? size(b - 1) + size(b) : all) * wide_bytes;
    if (zero == 3) now += (size(b) + size(b + 1)) * narrow_bytes;
    memory.transient = std::max(memory.transient, now);
  }
  return memory;
}

Result<Traffic> predict_traffic(std::span<const ParameterSpec> mine, int dp_rank, int dp, int tp,
                                const StoreOptions& options, int gathers) {
  TRY_ASSIGN(const std::vector<BucketLayout> buckets, make_buckets(mine, dp, tp, options));
  const DType wide = accumulator_of(options.type);
  Traffic sum;
  const auto count = [&](Operation operation, std::int64_t elements, DType type) {
    Traffic one;
    one[operation] = ring_traffic(operation, elements, type, dp_rank, dp);
    sum += one;
  };
  for (const BucketLayout& bucket : buckets) {
    const std::int64_t padded = bucket.info.padded_elements;
    if (options.zero == 0) {
      count(Operation::kAllReduce, bucket.info.elements, wide);
      continue;
    }
    count(Operation::kReduceScatter, padded, wide);
    const int times = options.zero == 3 ? gathers : 1;
    for (int i = 0; i < times; ++i) count(Operation::kAllGather, padded, options.type);
  }
  return sum;
}

}  // namespace tr::par
