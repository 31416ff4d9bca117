// The optimizer's step, and what checkpoints and hashes see of its state.
#include <string>

#include "treering/parallel/rng.hpp"

#include "parallel/digest.hpp"
#include "parallel/parameter_store.hpp"
#include "parallel/try.hpp"

namespace tr::par {
Status BucketStore::update(Bucket& bucket, double factor) {
  const View gradient = gradient_slice(bucket);
  if (factor != 1.0) TRY(compute_.scale(gradient, factor));
  const OptimizerOptions& how = options_.optimizer;
  if (!how.is_adamw) {
    return compute_.sgd(how.sgd_lr, how.sgd_momentum, gradient, bucket.m.view(), master(bucket));
  }
  return compute_.adamw(how.adamw, steps_ + 1, gradient, bucket.m.view(), bucket.v.view(),
                        master(bucket));
}

// This replica's masters become parameters, and are on their way to the others.
Status BucketStore::publish(Bucket& bucket) {
  if (!bucket.master.is_empty()) {
    TRY(compute_.copy(bucket.master.view(), parameter_slice(bucket)));
  }
  if (options_.zero != 1 && options_.zero != 2) return {};
  TRY_ASSIGN(bucket.publish_mark,
             dp_.all_gather(parameter_slice(bucket), bucket.parameters.view()));
  return {};
}

Status BucketStore::step(double factor) {
  if (!is_finished_) return Error{TR_INVALID_USAGE, "step: before finish"};
  for (const auto& [layer, bucket] : by_layer_) {
    if (bucket->holders > 0) {
      return Error{TR_INVALID_USAGE, "step: layer " + std::to_string(layer) +
                                         " is still acquired, and would keep its old parameters"};
    }
  }
  for (Bucket& bucket : buckets_) {
    TRY(update(bucket, factor));
    TRY(publish(bucket));
  }
  TRY(begin_next_step());
  for (Bucket& bucket : buckets_) TRY(dp_.wait(std::exchange(bucket.publish_mark, 0)));
  ++steps_;
  return {};
}

Status BucketStore::drop_gradients() {
  for (Bucket& bucket : buckets_) TRY(dp_.wait(std::exchange(bucket.reduce_mark, 0)));
  return begin_next_step();
}

// No gradients, nothing gathered, nothing ready.
Status BucketStore::begin_next_step() {
  for (Bucket& bucket : buckets_) {
    if (bucket.holders == 0 && !bucket.gathered.is_empty()) {  // prefetched, never acquired
      TRY(wait_gather(bucket));
      bucket.gathered = Tensor();
    }
    if (options_.zero >= 2) {
      bucket.gradients = Tensor();
    } else {
      TRY(compute_.fill(bucket.gradients.view(), 0.0));
    }
    bucket.is_reduced = false;
    bucket.not_ready = static_cast<int>(bucket.layout.info.layers.size());
  }
  is_ready_.clear();
  not_finite_.clear();
  next_ = 0;
  is_finished_ = false;
  return {};
}

void BucketStore::set_learning_rate(double lr) {
  (options_.optimizer.is_adamw ? options_.optimizer.adamw.lr : options_.optimizer.sgd_lr) = lr;
}

std::vector<ParameterStore::Piece> BucketStore::pieces() {
  std::vector<Piece> pieces;
  for (const Bucket& bucket : buckets_) {
    const Slice slice = my_slice(bucket);
    for (const Place& place : bucket.layout.places) {
      const std::int64_t first = std::max(place.first, slice.first);
      const std::int64_t last = std::min(place.first + place.elements, slice.first + slice.count);
      if (first >= last) continue;
      const auto part = [&](const View& all) {
        return all.data == nullptr ? View{} : all.columns(first - slice.first, last - first);
      };
      pieces.push_back({.number = mine_[place.index].number,
                        .first = first - place.first,
                        .master = part(master(bucket)),
                        .m = part(bucket.m.view()),
                        .v = part(bucket.v.view()),
                        .is_owner = is_sharded() || dp_.rank() == 0});
    }
  }
  return pieces;
}

Status BucketStore::set_steps(std::int64_t steps) {
  if (steps < 0) {
    return Error{TR_INVALID_ARGUMENT, "set_steps: " + std::to_string(steps) + " steps"};
  }
  steps_ = steps;
  return {};
}

Status BucketStore::publish_parameters() {
  for (Bucket& bucket : buckets_) TRY(publish(bucket));
  for (Bucket& bucket : buckets_) TRY(dp_.wait(std::exchange(bucket.publish_mark, 0)));
  return {};
}

// By parameter, so that the number depends neither on buckets nor on slices.
Result<std::uint64_t> BucketStore::hash() {
  std::map<int, std::uint64_t> hashes;
  for (Bucket& bucket : buckets_) {
    if (bucket.layout.info.layers.empty()) continue;
    const int layer = bucket.layout.info.layers.front();
    TRY(acquire(layer));
    for (const Place& place : bucket.layout.places) {
      const int number = mine_[place.index].number;
      const View values = parameter(number);
      std::string bytes(values.bytes(), '\0');
      TRY(compute_.download(values, bytes.data()));
      TRY(compute_.synchronize());
      hashes[number] = hash_of(bytes);
    }
    release(layer);
  }
  std::uint64_t all = 0;
  for (const auto& [number, hash] : hashes) all = mix(all ^ hash);
  return all;
}

}  // namespace tr::par
