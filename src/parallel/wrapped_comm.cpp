#include "parallel/wrapped_comm.hpp"

#include <numeric>

#include "treering/parallel/rng.hpp"

namespace tr::par {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Result<std::unique_ptr<Comm>> WrappedComm::split(std::span<const int> colors) {
  TRY_ASSIGN(std::unique_ptr<Comm> part, inner_->split(colors));
  const int mine = colors[static_cast<std::size_t>(rank())];
  std::vector<int> members;
  for (std::size_t i = 0; i < colors.size(); ++i) {
    if (colors[i] == mine) members.push_back(members_[i]);
  }
  const std::uint64_t key = random_bits(key_, ++splits_, static_cast<std::uint64_t>(mine));
  return wrap(std::move(part), std::move(members), key);
}

std::uint64_t WrappedComm::next_message(Operation operation, int peer) {
  const bool is_send = operation == Operation::kSend;
  std::vector<std::uint64_t>& counts = is_send ? sent_ : received_;
  counts.resize(static_cast<std::size_t>(size()));
  const auto from = static_cast<std::uint64_t>(is_send ? rank() : peer);
  const auto to = static_cast<std::uint64_t>(is_send ? peer : rank());
  const std::uint64_t link = from * static_cast<std::uint64_t>(size()) + to;
  // 52 bits: numbers in JSON are doubles to most readers.
  return (random_bits(key_, link, ++counts[static_cast<std::size_t>(peer)]) >> 12) | 1;
}

}  // namespace tr::par
