// What layers ask of the store: parameters that are whole, and a place for gradients.
#include "parallel/parameter_store.hpp"

#include "parallel/try.hpp"

namespace tr::par {

// Buffers outlive what is under way in them.
BucketStore::~BucketStore() { (void)dp_.wait_all(); }

Result<BucketStore::Bucket*> BucketStore::bucket_of_layer(int layer, const char* call) {
  const auto found = by_layer_.find(layer);
  if (found != by_layer_.end()) return found->second;
  return Error{TR_INVALID_ARGUMENT,
               std::string(call) + ": layer " + std::to_string(layer) + " is not of this rank"};
}

Result<BucketStore::Location> BucketStore::locate(int number, const char* call) {
  const auto found = by_number_.find(number);
  if (found != by_number_.end()) return found->second;
  return Error{TR_INVALID_ARGUMENT, std::string(call) + ": parameter " + std::to_string(number) +
                                        " is not of this rank"};
}

Status BucketStore::start_gather(Bucket& bucket) {
  if (!bucket.gathered.is_empty()) return {};
  TRY_ASSIGN(bucket.gathered,
             make(Use::kParameters, bucket.layout.info.padded_elements, options_.type));
  TRY_ASSIGN(bucket.gather_mark, dp_.all_gather(bucket.parameters.view(), bucket.gathered.view()));
  return {};
}

Status BucketStore::wait_gather(Bucket& bucket) {
  return dp_.wait(std::exchange(bucket.gather_mark, 0));
}

Status BucketStore::prefetch(int layer) {
  TRY_ASSIGN(Bucket* const bucket, bucket_of_layer(layer, "prefetch"));
  return options_.zero == 3 ? start_gather(*bucket) : Status();
}

Status BucketStore::acquire(int layer) {
  TRY_ASSIGN(Bucket* const bucket, bucket_of_layer(layer, "acquire"));
  if (options_.zero != 3) return {};
  TRY(start_gather(*bucket));
  TRY(wait_gather(*bucket));
  ++bucket->holders;
  return {};
}

void BucketStore::release(int layer) {
  const auto found = by_layer_.find(layer);
  if (options_.zero != 3 || found == by_layer_.end()) return;
  Bucket& bucket = *found->second;
  if (bucket.holders == 0 || --bucket.holders > 0) return;
  bucket.gathered = Tensor();
}

View BucketStore::parameter(int number) {
  const Result<Location> at = locate(number, "parameter");
  if (!at) return {};
  const auto [bucket, place] = at.value();
  const View& all = options_.zero == 3 ? bucket->gathered.view() : bucket->parameters.view();
  if (all.data == nullptr) return {};
  return view_of(all.at(0, place->first), place->rows, place->cols, options_.type);
}

Status BucketStore::make_gradients(Bucket& bucket) {
  if (!bucket.gradients.is_empty()) return {};
  TRY(end_early_reductions());
  TRY_ASSIGN(bucket.gradients, make(Use::kGradients, bucket.layout.info.padded_elements, wide_));
  return compute_.fill(bucket.gradients.view(), 0.0);
}

Result<View> BucketStore::gradient(int number) {
  TRY_ASSIGN(const Location at, locate(number, "gradient"));
  const auto [bucket, place] = at;
  // Adding to it now would be lost, or would race with its reduction. With zero 0 and 1 the sum may
  // be looked at, once all are there.
  if (bucket->is_reduced && (options_.zero >= 2 || !is_finished_)) {
    return Error{TR_INVALID_USAGE, "the gradient of " + mine_[place->index].name() +
                                       " was reduced already in this step: its layer was ready"};
  }
  TRY(make_gradients(*bucket));
  return view_of(bucket->gradients.view().at(0, place->first), place->rows, place->cols, wide_);
}

}  // namespace tr::par
