// A communicator some of whose pairs meet in device memory and some in pinned memory of the host:
// cells of the matrix, bit for bit, and messages.
//
//   mixed_test threads|processes
// What is wrong between devices, CUDASIM_BETWEEN says; rank r lies on device r mod 3.
#include <cstring>

#include "algos/registry.hpp"
#include "cuda/leaves_nothing.hpp"
#include "cuda/support.hpp"
#include "engine/device_engine.hpp"
#include "matrix/cell.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

Mode g_mode = Mode::kThreads;
constexpr int kRanks = 5;  // 0 and 3 share a device, 1 and 4

std::string explanation(tr_comm_t comm) {
  const char* text = nullptr;
  return tr_comm_explain(comm, &text) == TR_SUCCESS ? text : tr_get_last_error();
}

std::size_t count_of(const std::string& text, const std::string& words) {
  std::size_t n = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1))
    ++n;
  return n;
}

std::string how_processes_share() {
  const char* vmm = std::getenv("CUDASIM_VMM");
  return vmm != nullptr && std::string(vmm) == "0"
             ? ", CUDA IPC (GPU 0000:10:00.0: it has no virtual memory functions)"
             : ", mapped from a file descriptor (cuMem)";
}

// Every algorithm that has a kernel; types, operators and buffers take turns.
std::vector<Cell> cells_of_all(int size) {
  std::vector<Cell> cells;
  std::uint64_t turn = 0;
  for (const algos::Algorithm& a : algos::all_algorithms()) {
    if (a.collective == Collective::kBarrier || a.windows || !a.supports(size)) continue;
    for (const std::uint64_t count : {1, 257, 20011}) {
      ++turn;
      Cell cell;
      cell.algorithm = &a;
      cell.count = count;
      cell.type = static_cast<Type>(turn * 5 % kNumTypes);
      constexpr CellOp kOps[] = {CellOp::kSum, CellOp::kMax, CellOp::kProd, CellOp::kMin};
      cell.op = kOps[turn % 4];
      cell.in_place = turn % 3 == 1 && a.in_place;
      cell.root = static_cast<int>(turn) % size;
      cell.shift_in = static_cast<int>(turn * 5 % 17);
      cell.seed = 77 + turn;
      if (serves_memory(cell)) cells.push_back(cell);
    }
  }
  return cells;
}

// To every rank and from every rank, itself too, in one group.
std::string pass_to_all(tr_comm_t comm, int rank, int size) {
  for (const std::uint64_t count : {3, 30'000}) {
    std::vector<std::unique_ptr<DeviceArray<std::int32_t>>> out, in;
    for (int q = 0; q < size; ++q) {
      out.push_back(std::make_unique<DeviceArray<std::int32_t>>(count, rank * 100 + q));
      in.push_back(std::make_unique<DeviceArray<std::int32_t>>(count, -1));
    }
    tr_result_t r = tr_group_start();
    for (int q = 0; q < size; ++q) {
      const auto i = static_cast<std::size_t>(q);
      if (r == TR_SUCCESS) r = tr_send(out[i]->get(), count, TR_INT32, q, comm, nullptr);
      if (r == TR_SUCCESS) r = tr_recv(in[i]->get(), count, TR_INT32, q, comm, nullptr);
    }
    if (r == TR_SUCCESS) r = tr_group_end();
    if (r != TR_SUCCESS) return failure("messages", r);
    for (int q = 0; q < size; ++q) {
      const std::size_t wrong = in[static_cast<std::size_t>(q)]->wrong(q * 100 + rank);
      if (wrong != 0) return std::to_string(wrong) + " wrong from rank " + std::to_string(q);
    }
  }
  return {};
}

// In a communicator whose ranks are spread over the devices.
std::string spread(tr_comm_t comm, int rank, int size, const RankBody& body) {
  if (cudaSetDevice(rank % 3) != cudaSuccess) return "no such device";
  tr_comm_t apart = nullptr;
  if (tr_comm_split(comm, 0, rank, &apart) != TR_SUCCESS) return tr_get_last_error();
  std::string found = body(apart, rank, size);
  if (!found.empty()) found += "\n" + explanation(apart);
  (void)tr_comm_destroy(apart);
  return found;
}

TEST(Mixed, EveryAlgorithmHasTheOraclesBits) {
  for (const char* slice : {"1024", "0"}) {
    const Env slices("TR_SLICE_BYTES", slice);
    const auto cells = [](tr_comm_t comm, int rank, int size) -> std::string {
      const std::string text = explanation(comm);
      const std::size_t pinned = count_of(text, "pinned host memory, because ");
      // Some of each, or this test is of something else.
      const bool has_both = pinned > 0 && pinned < static_cast<std::size_t>(size) - 1;
      if (rank == 0 && !has_both) return "not mixed";
      if (g_mode == Mode::kProcesses && text.find(how_processes_share()) == std::string::npos)
        return "shared otherwise";
      Oracles oracles;
      for (const Cell& cell : cells_of_all(size)) {
        const char* collective = collective_name(cell.algorithm->collective);
        if (const tr_result_t r = tr_comm_set_algorithm(comm, collective, cell.algorithm->name);
            r != TR_SUCCESS) {
          return to_string(cell) + ": " + failure("tr_comm_set_algorithm", r);
        }
        const std::string wrong = run_cell(cell, comm, rank, size, oracles, nullptr);
        if (!wrong.empty()) return to_string(cell) + ": " + wrong;
      }
      return pass_to_all(comm, rank, size);
    };
    EXPECT_EQ(
        run_ranks(
            g_mode, kRanks,
            [&](tr_comm_t comm, int rank, int size) { return spread(comm, rank, size, cells); },
            100),
        "");
  }
}

// A split of a mixed communicator, many times: descriptors and mappings of a process stay as many.
TEST(Mixed, FortyCommunicatorsLeaveNothing) {
  EXPECT_EQ(run_ranks(g_mode, kRanks,
                      [](tr_comm_t comm, int rank, int size) {
                        return spread(comm, rank, size, [&](tr_comm_t apart, int, int) {
                          return leaves_nothing(apart, rank, 40);
                        });
                      }),
            "");
}

}  // namespace
}  // namespace treering::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ::setenv("TR_LOG", "off", 0);
  if (argc > 1 && std::string(argv[1]) == "processes")
    treering::test::g_mode = treering::test::Mode::kProcesses;
  return RUN_ALL_TESTS();
}
