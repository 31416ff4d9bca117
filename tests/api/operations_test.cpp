// What operations promise beyond the matrix: windows, order, special values, point to point,
// splits, reuse.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "support/ranks.hpp"

namespace treering::test {
namespace {

#define RETURN_IF_FAILED(call)                                                      \
  do {                                                                              \
    if (const tr_result_t r_ = (call); r_ != TR_SUCCESS) return failure(#call, r_); \
  } while (0)

class Operations : public testing::TestWithParam<Mode> {
 protected:
  void expect_fine(int n, const RankBody& body) {
    EXPECT_EQ(run_ranks(GetParam(), n, body, 60), "");
  }
};

// Registered memory: ranks read and write each other's buffers in place.
TEST_P(Operations, Windows) {
  for (const int n : {2, 3, 4}) {
    expect_fine(n, [](tr_comm_t comm, int rank, int size) -> std::string {
      constexpr std::size_t kElems = 30'000;
      const std::size_t bytes = kElems * size * sizeof(float);
      void *a = nullptr, *b = nullptr;
      tr_window_t wa, wb;
      RETURN_IF_FAILED(tr_mem_alloc(&a, bytes + 64));
      RETURN_IF_FAILED(tr_mem_alloc(&b, bytes));
      RETURN_IF_FAILED(tr_comm_register(comm, a, bytes + 64, &wa));
      RETURN_IF_FAILED(tr_comm_register(comm, b, bytes, &wb));
      auto* in = static_cast<float*>(a) + 16;  // not at the start of its window
      auto* out = static_cast<float*>(b);
      const auto value = [](int r, std::size_t i, int turn) {
        return static_cast<float>((i * 3 + r * 7 + turn) % 64);
      };
      for (int turn = 0; turn < 6; ++turn) {
        const bool in_place = turn % 2 == 1;
        float* const src = in_place ? out : in;
        for (std::size_t i = 0; i < kElems; ++i) src[i] = value(rank, i, turn);
        RETURN_IF_FAILED(tr_comm_set_algorithm(comm, "all_reduce", "window"));
        RETURN_IF_FAILED(tr_all_reduce(src, out, kElems, TR_FLOAT32, TR_SUM, comm, nullptr));
        for (std::size_t i = 0; i < kElems; ++i) {
          float want = 0;
          for (int r = 0; r < size; ++r) want += value(r, i, turn);
          if (out[i] != want) return "all_reduce element " + std::to_string(i);
        }
        RETURN_IF_FAILED(tr_comm_set_algorithm(comm, "all_gather", "window"));
        float* const part = in_place ? out + rank * 1000 : in;
        for (std::size_t i = 0; i < 1000; ++i) part[i] = value(rank, i, turn);
        RETURN_IF_FAILED(tr_all_gather(part, out, 1000, TR_FLOAT32, comm, nullptr));
        for (int r = 0; r < size; ++r) {
          for (std::size_t i = 0; i < 1000; ++i) {
            if (out[r * 1000 + i] != value(r, i, turn))
              return "all_gather element " + std::to_string(i);
          }
        }
        RETURN_IF_FAILED(tr_comm_set_algorithm(comm, "reduce_scatter", "window"));
        for (std::size_t i = 0; i < 1000u * size; ++i) in[i] = value(rank, i, turn);
        RETURN_IF_FAILED(tr_reduce_scatter(in, out, 1000, TR_FLOAT32, TR_MAX, comm, nullptr));
        for (std::size_t i = 0; i < 1000; ++i) {
          float want = 0;
          for (int r = 0; r < size; ++r) want = std::max(want, value(r, rank * 1000 + i, turn));
          if (out[i] != want) return "reduce_scatter element " + std::to_string(i);
        }
      }
      if (tr_mem_free(a) == TR_SUCCESS) return "freed memory that is still registered";
      RETURN_IF_FAILED(tr_comm_deregister(comm, wa));
      RETURN_IF_FAILED(tr_comm_deregister(comm, wb));
      if (tr_comm_deregister(comm, wa) != TR_INVALID_USAGE) return "deregistered twice";
      RETURN_IF_FAILED(tr_mem_free(a));
      RETURN_IF_FAILED(tr_mem_free(b));
      return {};
    });
  }
}

// TR_OPT_ORDERED: the bits depend neither on the size (and with it the algorithm) nor on the
// partition.
TEST_P(Operations, OrderedBitsAreTheLeftFold) {
  expect_fine(5, [](tr_comm_t comm, int, int size) -> std::string {
    RETURN_IF_FAILED(tr_comm_set_option(comm, TR_OPT_ORDERED, 1));
    constexpr std::size_t kElems = 100'003;
    std::vector<std::vector<float>> all(size, std::vector<float>(kElems));
    std::mt19937 random(5);
    for (auto& v : all) {
      for (float& x : v)
        x = std::ldexp(static_cast<float>(random() % 1000) - 500,
                       static_cast<int>(random() % 20) - 10);
    }
    int rank = 0;
    RETURN_IF_FAILED(tr_comm_rank(comm, &rank));
    for (const std::size_t count : {std::size_t{10}, std::size_t{5000}, kElems}) {
      std::vector<float> out(count);
      RETURN_IF_FAILED(
          tr_all_reduce(all[rank].data(), out.data(), count, TR_FLOAT32, TR_SUM, comm, nullptr));
      for (std::size_t i = 0; i < count; ++i) {
        float want = all[0][i];
        for (int r = 1; r < size; ++r) want += all[r][i];
        if (std::memcmp(&want, &out[i], sizeof want) != 0)
          return "element " + std::to_string(i) + " of " + std::to_string(count);
      }
    }
    if (tr_comm_set_algorithm(comm, "all_reduce", "ring") != TR_SUCCESS) return "cannot force ring";
    float x = 1, y;
    if (tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, nullptr) != TR_INVALID_ARGUMENT)
      return "ring cannot keep the order, but was used";
    return {};
  });
}

// H04: 256 and seven ones in bfloat16 are 263; the nearest bfloat16 is 264. A ring that starts at
// 256 loses every one.
TEST_P(Operations, Bfloat16IsRoundedOnce) {
  expect_fine(8, [](tr_comm_t comm, int rank, int) -> std::string {
    const std::uint16_t in = rank == 0 ? 0x4380 : 0x3F80;  // 256, 1
    std::uint16_t out = 0;
    for (const char* algorithm : {"one_shot", "two_shot"}) {
      RETURN_IF_FAILED(tr_comm_set_algorithm(comm, "all_reduce", algorithm));
      RETURN_IF_FAILED(tr_all_reduce(&in, &out, 1, TR_BFLOAT16, TR_SUM, comm, nullptr));
      if (out != 0x4384) return std::string(algorithm) + " gives " + std::to_string(out);
    }
    return {};
  });
}

// H03: a NaN on any rank wins in min and max, for every algorithm; -0 is less than +0.
TEST_P(Operations, NanAndSignedZero) {
  expect_fine(4, [](tr_comm_t comm, int rank, int size) -> std::string {
    for (const char* algorithm :
         {"ring", "tree", "halving_doubling", "recursive_doubling", "one_shot", "two_shot"}) {
      RETURN_IF_FAILED(tr_comm_set_algorithm(comm, "all_reduce", algorithm));
      for (int holder = 0; holder < size; ++holder) {
        for (const tr_op_t op : {TR_MIN, TR_MAX}) {
          const float inf = std::numeric_limits<float>::infinity();
          float in[3] = {rank == holder ? std::nanf("") : (rank % 2 != 0 ? inf : -inf),
                         rank == holder ? -0.0f : 0.0f, static_cast<float>(rank)};
          float out[3];
          RETURN_IF_FAILED(tr_all_reduce(in, out, 3, TR_FLOAT32, op, comm, nullptr));
          const bool zero_fine = out[1] == 0 && std::signbit(out[1]) == (op == TR_MIN);
          if (!std::isnan(out[0]) || !zero_fine || out[2] != (op == TR_MIN ? 0 : 3))
            return std::string(algorithm) + ", NaN on rank " + std::to_string(holder);
        }
      }
    }
    return {};
  });
}

// H05: the average of integers is the wrapped sum divided, truncated toward zero.
TEST_P(Operations, AverageOfIntegers) {
  expect_fine(3, [](tr_comm_t comm, int rank, int) -> std::string {
    const std::int32_t in[3] = {rank == 0 ? -7 : -2, rank + 1,
                                rank == 0 ? 2'000'000'000 : 200'000'000};
    std::int32_t out[3];
    RETURN_IF_FAILED(tr_all_reduce(in, out, 3, TR_INT32, TR_AVG, comm, nullptr));
    const auto wrapped = static_cast<std::int32_t>(static_cast<std::uint32_t>(2'400'000'000u));
    if (out[0] != -3 || out[1] != 2 || out[2] != wrapped / 3)
      return std::to_string(out[0]) + " " + std::to_string(out[1]) + " " + std::to_string(out[2]);
    return {};
  });
}

// H10: small sizes in a row, changing data, slots used again and again.
TEST_P(Operations, SmallMessagesNeverMatchStaleOnes) {
  for (const int n : {3, 6}) {
    expect_fine(n, [](tr_comm_t comm, int rank, int size) -> std::string {
      std::vector<std::uint8_t> in(4096), out(4096);
      for (int call = 0; call < 3000; ++call) {
        const std::size_t bytes = 1 + static_cast<std::size_t>(call * 37) % 4096;
        std::memset(in.data(), call * 5 + rank, bytes);
        RETURN_IF_FAILED(
            tr_all_reduce(in.data(), out.data(), bytes, TR_UINT8, TR_SUM, comm, nullptr));
        const auto want = static_cast<std::uint8_t>(size * call * 5 + size * (size - 1) / 2);
        for (std::size_t i = 0; i < bytes; ++i) {
          if (out[i] != want)
            return "call " + std::to_string(call) + " byte " + std::to_string(i) + " of " +
                   std::to_string(bytes);
        }
      }
      return {};
    });
  }
}

// H15: grouped, a send and a receive of any size complete; H11: all-to-all where some send nothing.
TEST_P(Operations, GroupedExchangeAndEmptyPairs) {
  expect_fine(4, [](tr_comm_t comm, int rank, int size) -> std::string {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{3'000'000}}) {
      std::vector<std::int32_t> give(count), take(count), own(count);
      std::iota(give.begin(), give.end(), rank * 1000);
      const int right = (rank + 1) % size, left = (rank + size - 1) % size;
      RETURN_IF_FAILED(tr_group_start());
      RETURN_IF_FAILED(tr_send(give.data(), count, TR_INT32, right, comm, nullptr));
      RETURN_IF_FAILED(tr_send(give.data(), count, TR_INT32, rank, comm, nullptr));
      RETURN_IF_FAILED(tr_recv(take.data(), count, TR_INT32, left, comm, nullptr));
      RETURN_IF_FAILED(tr_recv(own.data(), count, TR_INT32, rank, comm, nullptr));
      RETURN_IF_FAILED(tr_group_end());
      if (own != give) return "wrong data from itself";
      for (std::size_t i = 0; i < count; ++i) {
        if (take[i] != left * 1000 + static_cast<std::int32_t>(i))
          return "wrong data from the left";
      }
    }
    for (const int pattern : {0, 1, 2}) {  // rank 2 sends nothing; only 0 -> 1; nothing at all
      const auto count = [&](int src, int dst) -> std::uint64_t {
        if (pattern == 0) return src == 2 ? 0 : 10 + src + dst;
        return pattern == 1 && src == 0 && dst == 1 ? 100'000 : 0;
      };
      std::vector<std::uint64_t> sends(size), recvs(size);
      for (int q = 0; q < size; ++q) {
        sends[q] = count(rank, q);
        recvs[q] = count(q, rank);
      }
      std::vector<std::int32_t> in(std::accumulate(sends.begin(), sends.end(), 0ull) + 1, rank);
      std::vector<std::int32_t> out(std::accumulate(recvs.begin(), recvs.end(), 0ull) + 1, -1);
      RETURN_IF_FAILED(tr_all_to_all_v(in.data(), sends.data(), nullptr, out.data(), recvs.data(),
                                       nullptr, TR_INT32, comm, nullptr));
      std::size_t at = 0;
      for (int q = 0; q < size; ++q) {
        for (std::uint64_t i = 0; i < recvs[q]; ++i) {
          if (out[at++] != q)
            return "pattern " + std::to_string(pattern) + " from " + std::to_string(q);
        }
      }
      if (out[at] != -1) return "wrote past the end";
    }
    return {};
  });
}

TEST_P(Operations, SplitByColourAndKey) {
  expect_fine(5, [](tr_comm_t comm, int rank, int size) -> std::string {
    tr_comm_t half = nullptr, none = nullptr;
    // Reversed order within the colour.
    RETURN_IF_FAILED(tr_comm_split(comm, rank % 2, -rank, &half));
    int n = 0, r = 0;
    RETURN_IF_FAILED(tr_comm_size(half, &n));
    RETURN_IF_FAILED(tr_comm_rank(half, &r));
    const int members = rank % 2 == 0 ? 3 : 2;
    if (n != members || r != members - 1 - rank / 2)
      return "rank " + std::to_string(r) + " of " + std::to_string(n);
    std::int64_t mine = rank, sum = 0;
    RETURN_IF_FAILED(tr_all_reduce(&mine, &sum, 1, TR_INT64, TR_SUM, half, nullptr));
    if (sum != (rank % 2 == 0 ? 6 : 4)) return "sum " + std::to_string(sum);
    RETURN_IF_FAILED(tr_comm_split(half, r == 0 ? TR_SPLIT_NONE : 3, 0, &none));
    if ((none == nullptr) != (r == 0)) return "TR_SPLIT_NONE";
    if (none != nullptr) RETURN_IF_FAILED(tr_comm_destroy(none));
    RETURN_IF_FAILED(tr_comm_destroy(half));
    RETURN_IF_FAILED(tr_all_reduce(&mine, &sum, 1, TR_INT64, TR_SUM, comm, nullptr));
    return sum == size * (size - 1) / 2 ? "" : "the parent is broken";
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Operations, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& mode) { return std::string(mode_name(mode.param)); });

// A step of a direct algorithm folds as many inputs as there are ranks; each rank's own is scaled.
TEST(ManyRanks, EachScalesItsOwnInput) {
  const auto body = [](tr_comm_t comm, int rank, int size) -> std::string {
    tr_op_t op = 0;
    RETURN_IF_FAILED(tr_op_create_premul_sum(&op, rank + 1));
    for (const char* algorithm : {"one_shot", "two_shot"}) {
      RETURN_IF_FAILED(tr_comm_set_algorithm(comm, "all_reduce", algorithm));
      std::vector<float> x(80, 1.0f);
      RETURN_IF_FAILED(tr_all_reduce(x.data(), x.data(), x.size(), TR_FLOAT32, op, comm, nullptr));
      const float want = static_cast<float>(size * (size + 1) / 2);
      for (const float y : x) {
        if (y != want) return std::string(algorithm) + ": " + std::to_string(y);
      }
    }
    RETURN_IF_FAILED(tr_op_destroy(op));
    return {};
  };
  EXPECT_EQ(run_ranks(Mode::kThreads, 70, body), "");
}

// All ranks of a communicator driven by one thread, in a group.
TEST(OneThread, DrivesAllRanksInAGroup) {
  constexpr int kRanks = 4;
  tr_comm_t comms[kRanks];
  ASSERT_EQ(tr_comm_init_all(comms, kRanks), TR_SUCCESS) << tr_get_last_error();
  std::vector<std::vector<double>> in(kRanks, std::vector<double>(50'000)), out = in;
  for (int r = 0; r < kRanks; ++r) std::fill(in[r].begin(), in[r].end(), r + 1.0);
  ASSERT_EQ(tr_group_start(), TR_SUCCESS);
  for (int r = 0; r < kRanks; ++r) {
    ASSERT_EQ(tr_all_reduce(in[r].data(), out[r].data(), in[r].size(), TR_FLOAT64, TR_PROD,
                            comms[r], nullptr),
              TR_SUCCESS);
  }
  ASSERT_EQ(tr_group_end(), TR_SUCCESS) << tr_get_last_error();
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(out[r], std::vector<double>(50'000, 24.0));
    EXPECT_EQ(tr_comm_destroy(comms[r]), TR_SUCCESS);
  }
}

TEST(OneThread, SingleRankWithoutALauncher) {
  tr_comm_t comm;
  ASSERT_EQ(tr_comm_init_env(&comm), TR_SUCCESS) << tr_get_last_error();
  const char* text = nullptr;
  EXPECT_EQ(tr_comm_explain(comm, &text), TR_SUCCESS);
  EXPECT_NE(std::string(text).find("rank 0 of 1"), std::string::npos);
  float x[3] = {1, 2, 3}, y[3] = {};
  EXPECT_EQ(tr_reduce_scatter(x, y, 3, TR_FLOAT32, TR_AVG, comm, nullptr), TR_SUCCESS);
  EXPECT_EQ(std::memcmp(x, y, sizeof x), 0);
  EXPECT_EQ(tr_barrier(comm, nullptr), TR_SUCCESS);
  EXPECT_EQ(tr_comm_destroy(comm), TR_SUCCESS);
}

}  // namespace
}  // namespace treering::test
