// Names and nesting of the ranges that a tool sees.
#include "core/ranges.hpp"

#include <gtest/gtest.h>
#include <regex>
#include <string>
#include <vector>

#include "support/ranges.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

constexpr int kRanks = 2;

// Runs `body` on all ranks; it may call TRY. Then each rank's ranges must be expected(rank), where
// all of them end in " | communicator N: rank R of 2", which is left out.
#define TRY(call)                                                         \
  do {                                                                    \
    if (const tr_result_t result = (call)) return failure(#call, result); \
  } while (false)

std::string without_owner(const std::string& text, int rank) {
  const std::regex owner(" \\| communicator \\d+: rank " + std::to_string(rank) + " of 2\n");
  return std::regex_replace(text, owner, "\n");
}

void expect_ranges(const RankBody& body, const std::function<std::string(int rank)>& expected) {
  const std::string wrong =
      run_ranks(Mode::kThreads, kRanks, [&](tr_comm_t comm, int rank, int size) -> std::string {
        (void)ranges_of_this_thread();  // of making the communicator
        if (std::string failed = body(comm, rank, size); !failed.empty()) return failed;
        const std::string found = without_owner(ranges_of_this_thread(), rank);
        return found == expected(rank) ? "" : "expected\n" + expected(rank) + "found\n" + found;
      });
  EXPECT_EQ(wrong, "");
}

TEST(Ranges, HaveOperationAlgorithmBytesAndOwner) {
  expect_ranges(
      [](tr_comm_t comm, int, int) -> std::string {
        std::vector<float> x(1024), whole(2 * 1024);
        TRY(tr_comm_set_algorithm(comm, "all_reduce", "ring"));
        TRY(tr_comm_set_algorithm(comm, "all_gather", "bruck"));
        TRY(tr_comm_set_algorithm(comm, "barrier", "dissemination"));
        for (int i = 0; i < 3; ++i) {  // again is another road than the first time
          TRY(tr_all_reduce(x.data(), x.data(), 1024, TR_FLOAT32, TR_SUM, comm, nullptr));
        }
        TRY(tr_all_gather(x.data(), whole.data(), 1024, TR_FLOAT32, comm, nullptr));
        TRY(tr_barrier(comm, nullptr));
        TRY(tr_all_reduce(nullptr, nullptr, 0, TR_FLOAT32, TR_SUM, comm, nullptr));
        return "";
      },
      [](int) {
        return "all_reduce ring 4096 B | 4096\n"
               "all_reduce ring 4096 B | 4096\n"
               "all_reduce ring 4096 B | 4096\n"
               "all_gather bruck 8192 B | 8192\n"
               "barrier dissemination | none\n"
               "all_reduce ring 0 B | 0\n";
      });
}

TEST(Ranges, UnevenPartsAreTold) {
  expect_ranges(
      [](tr_comm_t comm, int rank, int) -> std::string {
        const std::uint64_t counts[] = {3, 5};
        std::vector<double> mine(5), all(8);
        TRY(tr_comm_set_algorithm(comm, "all_gather", "ring"));
        TRY(tr_all_gather_v(mine.data(), all.data(), counts, nullptr, TR_FLOAT64, comm, nullptr));
        TRY(tr_comm_set_algorithm(comm, "reduce_scatter", "ring"));
        TRY(tr_reduce_scatter_v(all.data(), mine.data(), counts, TR_FLOAT64, TR_SUM, comm,
                                nullptr));
        (void)rank;
        return "";
      },
      [](int) {
        return "all_gather_v ring 64 B | 64\n"
               "reduce_scatter_v ring 64 B | 64\n";
      });
}

TEST(Ranges, CallsOfAGroupAreInsideIt) {
  expect_ranges(
      [](tr_comm_t comm, int rank, int) -> std::string {
        std::int32_t out = rank, in = -1;
        TRY(tr_group_start());
        TRY(tr_send(&out, 1, TR_INT32, 1 - rank, comm, nullptr));
        TRY(tr_recv(&in, 1, TR_INT32, 1 - rank, comm, nullptr));
        TRY(tr_group_end());
        return in == 1 - rank ? "" : "received " + std::to_string(in);
      },
      [](int rank) {
        const std::string peer = std::to_string(1 - rank);
        return "group | none\n"
               "  send 4 B, rank " +
               peer + " | 4\n" + "  recv 4 B, rank " + peer + " | 4\n";
      });
}

TEST(Ranges, OnAStreamTheyAreThoseOfTheCalls) {
  expect_ranges(
      [](tr_comm_t comm, int, int) -> std::string {
        tr_stream_t stream = nullptr;
        TRY(tr_stream_create(&stream));
        std::vector<float> x(100), y(100);
        TRY(tr_comm_set_algorithm(comm, "all_reduce", "tree"));
        TRY(tr_all_reduce(x.data(), x.data(), 100, TR_FLOAT32, TR_SUM, comm, stream));
        TRY(tr_all_reduce(y.data(), y.data(), 10, TR_FLOAT32, TR_SUM, comm, nullptr));
        TRY(tr_stream_synchronize(stream));
        TRY(tr_stream_destroy(stream));
        return "";
      },
      [](int) {
        return "all_reduce tree 400 B | 400\n"
               "all_reduce tree 40 B | 40\n";
      });
}

// What the ranks tell each other shows, too: a length of 8 bytes and then as many.
TEST(Ranges, OfWindows) {
  expect_ranges(
      [](tr_comm_t comm, int, int) -> std::string {
        void* memory = nullptr;
        tr_window_t window = nullptr;
        TRY(tr_mem_alloc(&memory, 4096));
        TRY(tr_comm_register(comm, memory, 4096, &window));
        const std::string found = ranges_of_this_thread();
        TRY(tr_comm_deregister(comm, window));
        TRY(tr_mem_free(memory));
        if (found.rfind("register 4096 B | 4096 | ", 0) != 0) return found;
        return found.find("\n  send 8 B, rank ") != std::string::npos ? "" : found;
      },
      [](int) { return ""; });
}

// A call that is refused has none.
TEST(Ranges, NotOfWhatIsRefused) {
  expect_ranges(
      [](tr_comm_t comm, int, int) -> std::string {
        float x = 0;
        return tr_all_reduce(&x, &x, 1, TR_FLOAT32, TR_SUM, comm, nullptr) == TR_SUCCESS &&
                       tr_all_reduce(nullptr, &x, 1, TR_FLOAT32, TR_SUM, comm, nullptr) ==
                           TR_INVALID_ARGUMENT &&
                       tr_comm_abort(comm) == TR_SUCCESS &&
                       tr_barrier(comm, nullptr) == TR_ABORTED &&
                       ranges_of_this_thread().find("barrier") == std::string::npos
                   ? ""
                   : "unexpected results";
      },
      [](int) { return ""; });
}

// Longer than its place: cut, not written beyond.
TEST(Ranges, ALongNameIsCut) {
  const RangeOwner owner = make_range_owner(7, 9);
  (void)ranges_of_this_thread();
  const std::string operation(200, 'x');
  { const Range range(owner, {.operation = operation.c_str(), .bytes = 5}); }
  EXPECT_EQ(std::regex_replace(ranges_of_this_thread(), std::regex("communicator \\d+"), "C"),
            std::string(127, 'x') + " | 5 | C: rank 7 of 9\n");
}

}  // namespace
}  // namespace treering::test
