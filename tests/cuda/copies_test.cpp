// Moves by copy engines: every byte, and no kernel.
#include "cuda/copies.hpp"

#include <cudasim/control.hpp>
#include <string>
#include <vector>

#include "support/window_moves.hpp"

namespace treering::test {
namespace {

std::string move_by_copies(tr_comm_t comm, int rank, int size, bool on_stream) {
  constexpr std::uint64_t kMost = 100'003;
  const std::size_t bytes = WindowMoves::needed(kMost, size);
  // Windows of different lengths, the buffers at the same places in them.
  const DeviceWindow in(comm, bytes + 64 * static_cast<std::size_t>(rank) + 24);
  const DeviceWindow out(comm, bytes + 8);
  if (!in.wrong().empty() || !out.wrong().empty()) return in.wrong() + out.wrong();
  WindowMoves moves(comm, rank, size, in.get() + 24, out.get() + 8);
  moves.leave_out_what_copy_engines_do_not();
  const UserStream stream;
  if (on_stream) {
    moves.use_stream(stream.get(), [&] { return tr_stream_synchronize(stream.get()); });
  }
  const std::uint64_t launches = cudasim::launches();
  for (const std::uint64_t count :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{13}, std::uint64_t{4097}, kMost}) {
    if (std::string wrong = moves.run(count); !wrong.empty()) return wrong;
  }
  if (cudasim::launches() != launches) return "a kernel was launched";
  return {};
}

class Copies : public testing::TestWithParam<Mode> {
 protected:
  Env by_copies_{"TR_CUDA_COPY_ENGINE", "2"};
};

TEST_P(Copies, HaveEveryByteInItsPlaceWithoutAKernel) {
  for (const int n : {2, 3, 4}) {
    for (const bool on_stream : {false, true}) {
      EXPECT_EQ(run_ranks(
                    GetParam(), n,
                    [&](tr_comm_t comm, int rank, int size) {
                      return move_by_copies(comm, rank, size, on_stream);
                    },
                    60),
                "")
          << n << " ranks" << (on_stream ? ", on a stream" : "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Copies, testing::Values(Mode::kProcesses, Mode::kThreads),
                         [](const auto& p) { return std::string(mode_name(p.param)); });

}  // namespace
}  // namespace treering::test
