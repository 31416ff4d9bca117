#include "parallel/batches.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "treering/parallel/rng.hpp"
#include "treering/parallel/trainer.hpp"

namespace tr::par {

std::vector<std::int64_t> shuffled_rows(std::int64_t rows, std::uint64_t seed, int epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const std::uint64_t stream = shuffle_stream(epoch);
  for (std::size_t i = order.size(); i > 1; --i) {  // Fisher-Yates
    std::swap(order[i - 1], order[random_bits(seed, stream, i) % i]);
  }
  return order;
}

Share share_of(std::int64_t total, int index, int parts) {
  const std::int64_t each = total / parts, more = total % parts;
  return {index * each + std::min<std::int64_t>(index, more), each + (index < more ? 1 : 0)};
}

}  // namespace tr::par
