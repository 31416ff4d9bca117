#include <cstdlib>

#include "matrix/cell.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

constexpr std::size_t kWindowBytes = std::size_t{2} << 20;

}  // namespace

Arena::Arena(tr_comm_t comm, int rank)
    : comm_(comm), rank_(rank), memory_(take_shareable(2 * kWindowBytes)) {
  for (int i = 0; i < 2; ++i) {
    // Not whole blocks, and of different lengths.
    const auto cut = static_cast<std::size_t>(16 * rank + 1);
    const tr_result_t r =
        tr_comm_register(comm, memory_ + i * kWindowBytes + cut, kWindowBytes - cut, &windows_[i]);
    if (r != TR_SUCCESS) error_ = failure("tr_comm_register", r);
  }
}

Arena::~Arena() {
  for (const tr_window_t window : windows_) {
    if (window != nullptr) (void)tr_comm_deregister(comm_, window);
  }
  give_back_shareable(memory_, 2 * kWindowBytes);
}

void Arena::reset() {
  turn_ = rank_ % 2;
  used_[0] = used_[1] = static_cast<std::size_t>(16 * rank_ + 1);
}

std::byte* Arena::take(std::size_t bytes) {
  const int window = turn_++ % 2;
  std::byte* const taken = memory_ + window * kWindowBytes + used_[window];
  used_[window] += bytes;
  if (used_[window] > kWindowBytes) std::abort();
  return taken;
}

}  // namespace treering::test
