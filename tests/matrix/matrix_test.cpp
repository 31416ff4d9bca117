// The matrix: every collective x every algorithm x ranks x counts, each with a few rotating types,
// operators and buffers, against the replay oracle, bit for bit.
//
//   matrix_test threads     ranks as threads, n = 2..9, and hosts of several shapes
//   matrix_test processes   ranks as processes, n = 2, 4, 5, 8
//   matrix_test hosts       the same, on as many "hosts" as there are ranks: all over TCP
//   matrix_test two_hosts   the same, rank r on host r mod 2: shared memory and TCP
// The rotation follows from a seed that is printed (TR_TEST_SEED repeats it). TR_TEST_LONG=1: the
// full product of types, operators and buffers. TR_TEST_SMALL=1: a smaller matrix, for sanitizers.
// TR_TEST_CELLS=N: N cells of it, evenly spread. TR_TEST_LIMIT_S=S: seconds that all may take.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <random>

#include "matrix/cell.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

Mode g_mode = Mode::kThreads;
std::vector<int> g_hosts;  // that ranks play: rank r that of number r modulo its size

void play_on(std::vector<int> host_of_rank) {
  g_hosts = host_of_rank;
  play_hosts(std::move(host_of_rank));
}

bool env_set(const char* name) {
  const char* v = std::getenv(name);
  return v != nullptr && *v != '\0' && *v != '0';
}

std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* v = std::getenv("TR_TEST_SEED");
    return v != nullptr ? std::strtoull(v, nullptr, 10) : std::random_device{}();
  }();
  return value;
}

bool reduces(Collective c) {
  return c == Collective::kAllReduce || c == Collective::kReduce ||
         c == Collective::kReduceScatter || c == Collective::kScan || c == Collective::kExscan;
}

std::vector<std::uint64_t> counts_for(int n, bool small) {
  const auto u = [](int x) { return static_cast<std::uint64_t>(x); };
  // 256 float32 are a slice of 1 KiB, which half of the communicators are made with.
  std::vector<std::uint64_t> counts = {0,   1,   u(n - 1),        u(n), u(n + 1), 13,
                                       255, 257, 1024u * u(n) + 1};
  if (!small) counts.insert(counts.end(), {127, 256, 2047, 2053, 20011});
  return counts;
}

// The i-th variation of a cell. Long runs go through all of them, short ones through three.
Cell vary(Cell cell, std::uint64_t i, int n) {
  const bool folds = reduces(cell.algorithm->collective);
  cell.type = static_cast<Type>(i % kNumTypes);
  cell.op = folds ? static_cast<CellOp>(i / 3 % 7) : CellOp::kSum;
  const bool prefix = cell.algorithm->collective == Collective::kScan ||
                      cell.algorithm->collective == Collective::kExscan;
  if (cell.op == CellOp::kAvg && prefix) cell.op = CellOp::kMax;
  if (cell.op == CellOp::kPremulSum && (!is_float(cell.type) || cell.algorithm->windows))
    cell.op = CellOp::kMin;
  if (cell.op == CellOp::kCompose) {
    if (algos::keeps_order(*cell.algorithm, cell.hosts)) {
      cell.type = Type::kUint32;
    } else {
      cell.op = CellOp::kProd;
    }
  }
  cell.in_place = i / 2 % 3 == 1 && cell.algorithm->in_place;
  cell.specials = i % 4 == 3;
  cell.shift_in = static_cast<int>(i * 5 % 17);
  cell.shift_out = static_cast<int>(i * 11 % 23);
  // Who reads peers' buffers meets all kinds of alignments, and whole vectors.
  cell.skewed = i % 3 == 0;
  if (i % 3 == 1) cell.shift_in = cell.shift_out = 0;
  cell.root = static_cast<int>(i % static_cast<std::uint64_t>(n));
  cell.seed = seed() ^ i << 32 ^ cell.count;
  return cell;
}

std::vector<Cell> cells_for(int n, const HostMap* hosts = nullptr) {
  const bool small = env_set("TR_TEST_SMALL");
  const std::uint64_t variations = env_set("TR_TEST_LONG") ? 168 : small ? 1 : 3;
  std::vector<Cell> cells;
  std::uint64_t turn = seed() + static_cast<std::uint64_t>(n) * 131;
  for (const algos::Algorithm& a : algos::all_algorithms()) {
    if (a.collective == Collective::kBarrier || !algos::supports(a, n, hosts)) continue;
    if (g_hosts.empty() && hosts != nullptr && !a.needs_hosts()) continue;  // as on one host
    for (const bool uneven : {false, true}) {
      const bool has_variant =
          a.collective == Collective::kAllGather || a.collective == Collective::kReduceScatter ||
          a.collective == Collective::kGather || a.collective == Collective::kScatter ||
          a.collective == Collective::kAllToAll;
      if (uneven && !(a.uneven && has_variant)) continue;
      for (const std::uint64_t count : counts_for(n, small)) {
        for (std::uint64_t v = 0; v < variations; ++v) {
          Cell cell;
          cell.algorithm = &a;
          cell.hosts = hosts;
          cell.uneven = uneven;
          cell.count = count;
          const Cell varied = vary(cell, turn++, n);
          if (serves_memory(varied)) cells.push_back(varied);
        }
      }
    }
  }
  return cells;
}

std::string run_all(const std::vector<Cell>& cells, tr_comm_t comm, int rank, int size) {
  Oracles oracles;
  std::unique_ptr<Arena> arena;
  for (const Cell& cell : cells) {
    if (cell.algorithm->windows && arena == nullptr) {
      arena = std::make_unique<Arena>(comm, rank);
      if (!arena->error().empty()) return arena->error();
    }
    const char* collective = collective_name(cell.algorithm->collective);
    if (const tr_result_t r = tr_comm_set_algorithm(comm, collective, cell.algorithm->name);
        r != TR_SUCCESS) {
      return to_string(cell) + ": " + failure("tr_comm_set_algorithm", r);
    }
    const std::string wrong =
        run_cell(cell, comm, rank, size, oracles, cell.algorithm->windows ? arena.get() : nullptr);
    if (!wrong.empty()) return to_string(cell) + ": " + wrong;
  }
  return {};
}

std::uint64_t number_or(const char* name, std::uint64_t otherwise) {
  return env_set(name) ? std::strtoull(std::getenv(name), nullptr, 10) : otherwise;
}

// At most `most` of them, from all over.
std::vector<Cell> thin(const std::vector<Cell>& cells, std::uint64_t most) {
  std::vector<Cell> some;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(most, cells.size()); ++i) {
    some.push_back(cells[i * cells.size() / std::min<std::uint64_t>(most, cells.size())]);
  }
  return some;
}

void expect_the_oracles_bits(const std::vector<Cell>& all, int n) {
  const std::vector<Cell> cells = thin(all, number_or("TR_TEST_CELLS", all.size()));
  const auto limit_s = static_cast<int>(number_or("TR_TEST_LIMIT_S", 600));
  // Small slices make many rounds of few bytes; the other half keeps the library's own.
  for (const char* slice : {"1024", "0"}) {
    std::printf("%zu cells, n = %d, %s, TR_SLICE_BYTES %s, seed %llu\n", cells.size(), n,
                mode_name(g_mode), slice, static_cast<unsigned long long>(seed()));
    ::setenv("TR_SLICE_BYTES", slice, 1);
    std::vector<Cell> half;
    for (std::size_t i = slice[0] == '1' ? 0 : 1; i < cells.size(); i += 2)
      half.push_back(cells[i]);
    EXPECT_EQ(
        run_ranks(
            g_mode, n, [&](tr_comm_t c, int r, int s) { return run_all(half, c, r, s); }, limit_s),
        "");
  }
}

class Matrix : public testing::TestWithParam<int> {};

TEST_P(Matrix, EveryCellHasTheOraclesBits) {
  std::vector<int> host_of_rank(static_cast<std::size_t>(GetParam()), 0);
  for (std::size_t r = 0; r < host_of_rank.size() && !g_hosts.empty(); ++r)
    host_of_rank[r] = g_hosts[r % g_hosts.size()];
  const HostMap hosts(host_of_rank);
  const std::vector<Cell> all = cells_for(GetParam(), g_hosts.empty() ? nullptr : &hosts);
  ASSERT_GT(all.size(), 100u);
  expect_the_oracles_bits(all, GetParam());
}

// Algorithms that know the hosts, over shared memory: TR_TEST_HOSTS says which ranks share a host.
class HostMatrix : public testing::TestWithParam<const char*> {
 protected:
  ~HostMatrix() override { ::unsetenv("TR_TEST_HOSTS"); }
};

TEST_P(HostMatrix, EveryCellHasTheOraclesBits) {
  const Result<HostMap> hosts = HostMap::parse(GetParam());
  ASSERT_TRUE(hosts.ok()) << hosts.status().message();
  const int n = hosts.value().ranks();
  const std::vector<Cell> all = cells_for(n, &hosts.value());
  ASSERT_GT(all.size(), 40u);
  std::printf("hosts %s\n", GetParam());
  ::setenv("TR_TEST_HOSTS", GetParam(), 1);
  expect_the_oracles_bits(all, n);
}

std::string host_map_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '+' || c == ','; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Maps, HostMatrix,
                         testing::Values("2x2", "3x1", "2+1", "1+3", "0,1,0,1", "1,0,2,1,0,0,2"),
                         host_map_name);

INSTANTIATE_TEST_SUITE_P(Ranks, Matrix, testing::Range(2, 10));

}  // namespace
}  // namespace treering::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string mode = argc > 1 ? argv[1] : "threads";
  if (mode != "threads") treering::test::g_mode = treering::test::Mode::kProcesses;
  if (mode == "hosts") treering::test::play_on({0, 1, 2, 3, 4, 5, 6, 7, 8});
  if (mode == "two_hosts") treering::test::play_on({0, 1});
  return RUN_ALL_TESTS();
}
