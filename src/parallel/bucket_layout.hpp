// How a rank's parameters are laid out in buckets.
#pragma once

#include <span>
#include <vector>

#include "treering/parallel/parameters.hpp"

namespace tr::par {

struct Place {
  int index = 0;                         // of the parameter, in the store's list
  std::int64_t rows = 0, cols = 0;       // of this rank's part
  std::int64_t first = 0, elements = 0;  // in the bucket
  bool is_partial = false;               // its gradient is to be summed over tp
};

struct BucketLayout {
  BucketInfo info;
  // By layer, the last first; but those with partial gradients stand at the end, so that one
  // all-reduce over tp takes them all.
  std::vector<Place> places;
  std::int64_t first_partial = 0;  // elements from here to info.elements are partial
};

Result<std::vector<BucketLayout>> make_buckets(std::span<const ParameterSpec> mine, int dp, int tp,
                                               const StoreOptions& options);

}  // namespace tr::par
