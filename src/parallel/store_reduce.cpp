// Gradients: summed over the replicas, bucket by bucket, while the backward pass still runs.
#include <cmath>

#include "parallel/host_gather.hpp"
#include "parallel/parameter_store.hpp"
#include "parallel/try.hpp"

namespace tr::par {

Status BucketStore::mark_ready(int layer) {
  TRY_ASSIGN(Bucket* const bucket, bucket_of_layer(layer, "ready"));
  if (std::exchange(is_ready_[layer], true)) {
    return Error{TR_INVALID_USAGE,
                 "layer " + std::to_string(layer) + " was ready already in this step"};
  }
  --bucket->not_ready;
  return make_gradients(*bucket);  // of a layer that nobody added to: zeros
}

Status BucketStore::ready(int layer) {
  TRY(mark_ready(layer));
  if (!options_.overlap) return {};
  for (; next_ < buckets_.size() && buckets_[next_].not_ready == 0; ++next_) {
    TRY(reduce(buckets_[next_]));
  }
  return {};
}

Status BucketStore::ready_empty() {
  if (options_.zero == 3) {
    return Error{TR_UNSUPPORTED,
                 "with zero 3 all replicas gather each layer: a replica without rows runs "
                 "micro-batches of no rows instead of ready_empty()"};
  }
  for (const Bucket& bucket : buckets_) {
    for (const int layer : bucket.layout.info.layers) {
      if (!is_ready_[layer]) TRY(ready(layer));
    }
  }
  return {};
}

// Begins the sum over the replicas; what hooks do is done when it returns.
Status BucketStore::reduce(Bucket& bucket) {
  bucket.is_reduced = true;
  if (options_.check_finite && not_finite_.empty()) {
    TRY_ASSIGN(not_finite_, look_for_not_finite(bucket));
  }
  TRY(reduce_partials(bucket));
  return reduce_now(bucket);
}

Status BucketStore::reduce_now(Bucket& bucket) {
  const View& whole = bucket.gradients.view();
  const int number = static_cast<int>(&bucket - buckets_.data());
  if (options_.hook != nullptr) {
    TRY(options_.hook->reduce(dp_, compute_, number, whole));
    return even_out(bucket);
  }
  if (options_.zero == 0) {
    const View unpadded = whole.columns(0, bucket.layout.info.elements);
    TRY_ASSIGN(bucket.reduce_mark, dp_.all_reduce(unpadded, unpadded));
  } else {
    TRY_ASSIGN(bucket.reduce_mark, dp_.reduce_scatter(whole, gradient_slice(bucket)));
  }
  return {};
}

// Over tp first, where its ranks have seen different rows.
Status BucketStore::reduce_partials(Bucket& bucket) {
  const std::int64_t first = bucket.layout.first_partial;
  const std::int64_t count = bucket.layout.info.elements - first;
  if (count == 0) return {};
  const View partial = bucket.gradients.view().columns(first, count);
  TRY_ASSIGN(const Comm::Mark mark, tp_.all_reduce(partial, partial));
  return tp_.wait(mark);
}

// A hook may round what all shards have by what lies beside it, which is each shard's own. Without
// this, shards' copies of one parameter would drift apart.
Status BucketStore::even_out(Bucket& bucket) {
  if (tp_.size() == 1) return {};
  for (const Place& place : bucket.layout.places) {
    if (mine_[place.index].layout != Layout::kReplicated) continue;
    const View values = bucket.gradients.view().columns(place.first, place.elements);
    TRY_ASSIGN(const Comm::Mark mark, tp_.broadcast(values, 0));
    TRY(tp_.wait(mark));
  }
  return {};
}

Status BucketStore::end_reduction(Bucket& bucket) {
  TRY(dp_.wait(std::exchange(bucket.reduce_mark, 0)));
  if (options_.zero >= 2) bucket.gradients = Tensor();
  return {};
}

// All but the newest, so that two buckets at most are whole.
Status BucketStore::end_early_reductions() {
  for (std::size_t i = 0; i + 1 < next_; ++i) TRY(end_reduction(buckets_[i]));
  return {};
}

Status BucketStore::launch_rest_and_wait() {
  for (; next_ < buckets_.size(); ++next_) {
    TRY(make_gradients(buckets_[next_]));
    TRY(reduce(buckets_[next_]));
  }
  for (Bucket& bucket : buckets_) TRY(end_reduction(bucket));
  return {};
}

Status BucketStore::all_were_ready() {
  std::vector<double> missing;
  for (const auto& [layer, bucket] : by_layer_) missing.push_back(is_ready_[layer] ? 0.0 : 1.0);
  TRY_ASSIGN(const std::vector<double> all, gather_over(*control_, compute_, missing));
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == 0.0) continue;
    const auto layer =
        std::next(by_layer_.begin(), static_cast<std::ptrdiff_t>(i % missing.size()));
    text += (text.empty() ? "layer " : ", layer ") + std::to_string(layer->first) + " on replica " +
            std::to_string(i / missing.size());
  }
  if (text.empty()) return {};
  return Error{TR_INVALID_ARGUMENT, "gradients that were never ready in this step: " + text};
}

// The buckets go out even if a layer is missing somewhere: other replicas wait for them.
Status BucketStore::finish() {
  if (is_finished_) return Error{TR_INVALID_USAGE, "finish: called twice in a step"};
  Status ready = all_were_ready();
  TRY(launch_rest_and_wait());
  TRY(std::move(ready));
  is_finished_ = true;
  return {};
}

Result<std::string> BucketStore::look_for_not_finite(const Bucket& bucket) {
  for (const Place& place : bucket.layout.places) {
    const View gradient = bucket.gradients.view().columns(place.first, place.elements);
    TRY_ASSIGN(const std::optional<std::int64_t> found, compute_.find_not_finite(gradient));
    if (!found) continue;
    return "the gradient of " + mine_[place.index].name() + " is not finite at row " +
           std::to_string(*found / place.cols) + ", column " + std::to_string(*found % place.cols) +
           " of this rank's part (replica " + std::to_string(dp_.rank()) + ", shard " +
           std::to_string(tp_.rank()) + ")";
  }
  return std::string();
}

Result<std::string> BucketStore::find_not_finite() {
  for (const Bucket& bucket : buckets_) {
    if (!not_finite_.empty()) break;
    if (bucket.is_reduced || bucket.gradients.is_empty()) continue;
    TRY_ASSIGN(not_finite_, look_for_not_finite(bucket));
  }
  return not_finite_;
}

// Of the elements of `slice`, which lies at `where` in the bucket, that this rank counts: what all
// shards have, the first of them counts. Padding is zero.
Result<double> BucketStore::sum_of_squares(const Bucket& bucket, const View& slice, Slice where) {
  if (tp_.rank() == 0) return compute_.sum_of_squares(slice);
  double sum = 0.0;
  for (const Place& place : bucket.layout.places) {
    if (mine_[place.index].layout == Layout::kReplicated) continue;
    const std::int64_t first = std::max(place.first, where.first);
    const std::int64_t last = std::min(place.first + place.elements, where.first + where.count);
    if (first >= last) continue;
    TRY_ASSIGN(const double part,
               compute_.sum_of_squares(slice.columns(first - where.first, last - first)));
    sum += part;
  }
  return sum;
}

// Summed slice by slice, whoever has them, then in the replicas' order: sharded or not, the same
// bits.
Result<double> BucketStore::gradient_norm(Comm& model) {
  if (!is_finished_) return Error{TR_INVALID_USAGE, "gradient_norm: before finish"};
  const int n = dp_.size();
  std::vector<double> sums(static_cast<std::size_t>(n));
  for (int d = 0; d < n; ++d) {
    if (is_sharded() && d != dp_.rank()) continue;
    for (const Bucket& bucket : buckets_) {
      const std::int64_t each = bucket.layout.info.padded_elements / n;
      const View slice =
          is_sharded() ? gradient_slice(bucket) : bucket.gradients.view().columns(d * each, each);
      TRY_ASSIGN(const double part, sum_of_squares(bucket, slice, {d * each, each}));
      sums[static_cast<std::size_t>(d)] += part;
    }
  }
  double mine = 0.0;
  if (is_sharded()) {
    const double own = sums[static_cast<std::size_t>(dp_.rank())];
    TRY_ASSIGN(mine, ordered_sum_over(*control_, compute_, own));
  } else {
    for (const double sum : sums) mine += sum;
  }
  TRY_ASSIGN(const double total, ordered_sum_over(model, compute_, mine));
  return std::sqrt(total);
}

}  // namespace tr::par
