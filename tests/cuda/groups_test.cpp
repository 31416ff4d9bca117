// Collectives of a group on device memory, in one kernel or several: they run in issue order, and
// have the oracle's bits.
//
//   groups_test threads|processes
// TR_TEST_SEED repeats the random groups of a seed that was printed.
#include <cstring>
#include <random>

#include "algos/registry.hpp"
#include "cuda/support.hpp"
#include "matrix/cell.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

Mode g_mode = Mode::kThreads;

#define RETURN_IF_FAILED(call)                                                         \
  do {                                                                                 \
    const tr_result_t result_ = (call);                                                \
    if (result_ != TR_SUCCESS) return std::string(#call) + ": " + tr_get_last_error(); \
  } while (false)

std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* v = std::getenv("TR_TEST_SEED");
    return v != nullptr ? std::strtoull(v, nullptr, 10) : std::random_device{}();
  }();
  return value;
}

// A group that all ranks issue alike: each collective has one algorithm in it.
std::vector<Cell> random_group(std::mt19937_64& random, int n) {
  const auto below = [&](std::uint64_t most) { return random() % most; };
  std::vector<Cell> cells;
  const algos::Algorithm* of[kNumCollectives] = {};
  for (std::uint64_t left = 1 + below(12); left > 0; --left) {
    Cell cell;
    do {
      cell.algorithm = &algos::all_algorithms()[below(algos::all_algorithms().size())];
    } while (cell.algorithm->collective == Collective::kBarrier || !cell.algorithm->supports(n) ||
             cell.algorithm->windows || !serves_memory(cell));
    const Collective c = cell.algorithm->collective;
    const algos::Algorithm*& chosen = of[static_cast<int>(c)];
    if (chosen == nullptr) chosen = cell.algorithm;
    cell.algorithm = chosen;
    cell.uneven =
        chosen->uneven && below(3) == 0 &&
        (c == Collective::kAllGather || c == Collective::kReduceScatter ||
         c == Collective::kGather || c == Collective::kScatter || c == Collective::kAllToAll);
    constexpr std::uint64_t kCounts[] = {0, 1, 3, 64, 257, 1500, 6000};
    cell.count = kCounts[below(std::size(kCounts))];
    cell.type = static_cast<Type>(below(kNumTypes));
    constexpr CellOp kOps[] = {CellOp::kSum, CellOp::kProd, CellOp::kMin, CellOp::kMax};
    cell.op = kOps[below(std::size(kOps))];
    cell.root = static_cast<int>(below(static_cast<std::uint64_t>(n)));
    cell.in_place = chosen->in_place && below(3) == 0;
    cell.shift_in = static_cast<int>(below(17));
    cell.shift_out = static_cast<int>(below(23));
    cell.seed = random();
    cells.push_back(cell);
  }
  return cells;
}

std::string run_group(const std::vector<Cell>& cells, tr_comm_t comm, int rank, int size,
                      Oracles& oracles, tr_stream_t stream) {
  std::vector<std::unique_ptr<RunningCell>> running;
  for (const Cell& cell : cells) {
    RETURN_IF_FAILED(tr_comm_set_algorithm(comm, collective_name(cell.algorithm->collective),
                                           cell.algorithm->name));
    running.push_back(RunningCell::make(cell, rank, size, oracles, nullptr));
  }
  RETURN_IF_FAILED(tr_group_start());
  std::string wrong;
  for (const auto& cell : running) {
    if (wrong.empty()) wrong = cell->call(comm, stream);
  }
  const tr_result_t ended = tr_group_end();
  if (!wrong.empty()) return wrong;
  RETURN_IF_FAILED(ended);
  RETURN_IF_FAILED(tr_stream_synchronize(stream));
  for (std::size_t i = 0; i < cells.size(); ++i) {
    wrong = running[i]->wrong();
    if (!wrong.empty()) {
      return "call " + std::to_string(i) + " of " + std::to_string(cells.size()) + ", " +
             to_string(cells[i]) + ": " + wrong;
    }
  }
  return {};
}

// Every protocol, and the library's own choice, by which a group has calls of several.
class Random : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Protocols, Random, testing::Values("", "Simple", "LL", "LL128"),
                         [](const auto& param) {
                           return *param.param == '\0' ? std::string("Own") : param.param;
                         });

TEST_P(Random, GroupsHaveTheOraclesBits) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed()));
  const Env protocol("TR_PROTOCOL", GetParam());
  const Env slices("TR_SLICE_BYTES", "1024");
  for (const int n : {2, 3, 4}) {
    const auto body = [&](tr_comm_t comm, int rank, int size) -> std::string {
      std::mt19937_64 random(seed() + static_cast<std::uint64_t>(size));
      const UserStream stream;
      Oracles oracles;
      for (int i = 0; i < 12; ++i) {
        const std::string wrong = run_group(random_group(random, size), comm, rank, size, oracles,
                                            i % 2 == 0 ? nullptr : stream.get());
        if (!wrong.empty()) return "group " + std::to_string(i) + ": " + wrong;
      }
      return {};
    };
    EXPECT_EQ(run_ranks(g_mode, n, body, 60), "") << n << " ranks, seed " << seed();
  }
}

// Calls that share buffers: each must see all of what the one before wrote, whichever channel and
// lane that was.
TEST(Chain, EachCallSeesTheOneBefore) {
  const Env slices("TR_SLICE_BYTES", "1024");
  for (const int n : {2, 3, 4}) {
    const auto body = [](tr_comm_t comm, int rank, int size) -> std::string {
      const UserStream stream;
      for (const char* algorithm : {"ring", "tree", "two_shot"}) {
        RETURN_IF_FAILED(tr_comm_set_algorithm(comm, "all_reduce", algorithm));
        for (const std::uint64_t count : {1, 300, 5000}) {
          const std::uint64_t whole = count * static_cast<std::uint64_t>(size);
          const DeviceArray<std::uint32_t> a(whole, static_cast<std::uint32_t>(rank + 1)),
              b(whole, 0), c(count, 0);
          const auto factor = static_cast<std::uint32_t>(size);
          std::uint32_t expected = factor * (factor + 1) / 2;
          RETURN_IF_FAILED(tr_group_start());
          const tr_stream_t s = stream.get();
          RETURN_IF_FAILED(tr_all_reduce(a.get(), b.get(), whole, TR_UINT32, TR_SUM, comm, s));
          for (int i = 0; i < 5; ++i, expected *= factor) {
            RETURN_IF_FAILED(tr_all_reduce(b.get(), b.get(), whole, TR_UINT32, TR_SUM, comm, s));
          }
          RETURN_IF_FAILED(tr_reduce_scatter(b.get(), c.get(), count, TR_UINT32, TR_SUM, comm, s));
          expected *= factor;
          RETURN_IF_FAILED(tr_barrier(comm, s));
          RETURN_IF_FAILED(tr_all_gather(c.get(), a.get(), count, TR_UINT32, comm, s));
          RETURN_IF_FAILED(tr_group_end());
          RETURN_IF_FAILED(tr_stream_synchronize(s));
          if (a.wrong(expected) != 0) return std::string(algorithm) + ", " + std::to_string(count);
        }
      }
      return {};
    };
    EXPECT_EQ(run_ranks(g_mode, n, body, 60), "") << n << " ranks";
  }
}

// A rank whose group is cut into other launches, by its streams, its messages or its buffers, works
// with those whose group is one.
TEST(Mixed, RanksNeedNotHaveTheSameLaunches) {
  const auto body = [](tr_comm_t comm, int rank, int size) -> std::string {
    const UserStream one, other;
    const int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (int i = 0; i < 8; ++i) {
      constexpr std::uint64_t kCount = 700;
      std::vector<std::unique_ptr<DeviceArray<float>>> sums;
      const DeviceArray<std::uint8_t> sent(100, static_cast<std::uint8_t>(rank)), received(100, 99);
      RETURN_IF_FAILED(tr_group_start());
      for (int k = 0; k < 6; ++k) {
        sums.push_back(std::make_unique<DeviceArray<float>>(kCount, static_cast<float>(rank + k)));
        float* const data = sums.back()->get();
        const bool apart = (rank + i) % 3 == 1 && k % 2 == 1;
        if ((rank + i) % 3 == 2 && k == 3) {
          RETURN_IF_FAILED(tr_send(sent.get(), 100, TR_UINT8, next, comm, one.get()));
        }
        RETURN_IF_FAILED(tr_all_reduce(data, data, kCount, TR_FLOAT32, TR_MAX, comm,
                                       apart ? other.get() : one.get()));
      }
      RETURN_IF_FAILED(tr_recv(received.get(), 100, TR_UINT8, last, comm, one.get()));
      if ((rank + i) % 3 != 2) {
        RETURN_IF_FAILED(tr_send(sent.get(), 100, TR_UINT8, next, comm, one.get()));
      }
      RETURN_IF_FAILED(tr_group_end());
      RETURN_IF_FAILED(tr_stream_synchronize(one.get()));
      RETURN_IF_FAILED(tr_stream_synchronize(other.get()));
      for (int k = 0; k < 6; ++k) {
        if (sums[static_cast<std::size_t>(k)]->wrong(static_cast<float>(size - 1 + k)) != 0)
          return "sum " + std::to_string(k) + " of group " + std::to_string(i);
      }
      if (received.wrong(static_cast<std::uint8_t>(last)) != 0) return "the message";
    }
    return {};
  };
  for (const int n : {2, 3}) EXPECT_EQ(run_ranks(g_mode, n, body, 60), "") << n << " ranks";
}

TEST(Graph, AGroupIsCapturedOnceAndReplayedOften) {
  const auto body = [](tr_comm_t comm, int rank, int) -> std::string {
    const UserStream stream;
    constexpr int kCalls = 5;
    constexpr std::uint64_t kCounts[kCalls] = {7, 5000, 1, 900, 20000};
    std::vector<std::unique_ptr<DeviceArray<std::int32_t>>> data;
    for (const std::uint64_t count : kCounts) {
      data.push_back(std::make_unique<DeviceArray<std::int32_t>>(count, rank + 1));
    }
    const auto group = [&]() -> std::string {
      RETURN_IF_FAILED(tr_group_start());
      for (int k = 0; k < kCalls; ++k) {
        std::int32_t* const x = data[static_cast<std::size_t>(k)]->get();
        RETURN_IF_FAILED(tr_all_reduce(x, x, kCounts[k], TR_INT32, TR_SUM, comm, stream.get()));
      }
      RETURN_IF_FAILED(tr_group_end());
      return {};
    };
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    if (cudaStreamBeginCapture(stream.cuda(), cudaStreamCaptureModeThreadLocal) != cudaSuccess)
      return "begin";
    if (std::string wrong = group(); !wrong.empty()) return wrong;
    if (cudaStreamEndCapture(stream.cuda(), &graph) != cudaSuccess ||
        cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess)
      return "end";
    std::int32_t expected = 3;
    for (int i = 0; i < 12; ++i) {
      if (i > 0) expected *= 2;
      if (i % 3 == 2) {  // outside of the graph, on the same links
        if (std::string wrong = group(); !wrong.empty()) return wrong;
      } else if (cudaGraphLaunch(exec, stream.cuda()) != cudaSuccess) {
        return "launch";
      }
      RETURN_IF_FAILED(tr_stream_synchronize(stream.get()));
      for (const auto& array : data) {
        if (array->wrong(expected) != 0) return "replay " + std::to_string(i);
      }
    }
    if (cudaGraphExecDestroy(exec) != cudaSuccess || cudaGraphDestroy(graph) != cudaSuccess)
      return "destroy";
    return {};
  };
  EXPECT_EQ(run_ranks(g_mode, 2, body, 60), "");
}

}  // namespace
}  // namespace treering::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::string(argv[1]) == "processes")
    treering::test::g_mode = treering::test::Mode::kProcesses;
  return RUN_ALL_TESTS();
}
