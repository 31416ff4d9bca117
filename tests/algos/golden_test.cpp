// Golden schedules: what small cases look like, step by step, in tests/golden. They are read and
// understood by hand before they are changed: TR_TEST_UPDATE_GOLDEN=1 writes what the code does
// now.
#include <fstream>
#include <optional>
#include <sstream>

#include "tests/algos/support.hpp"

namespace treering::algos {
namespace {

std::string rendered(const Algorithm& a, int size, int root, const HostMap* hosts) {
  std::ostringstream text;
  text << collective_name(a.collective) << " " << a.name << ", " << size << " ranks";
  if (has_root(a.collective)) text << ", root " << root;
  if (hosts != nullptr) text << ", hosts " << hosts->text();
  const int chunks = chunk_count(a, size, hosts);
  text << ", " << chunks << (chunks == 1 ? " chunk\n" : " chunks\n");
  for (int rank = 0; rank < size; ++rank) {
    const Schedule schedule = record(a, rank, size, root, hosts);
    text << "\nrank " << rank << "\n";
    for (int lane = 0; lane < schedule.lanes; ++lane) {
      if (schedule.lanes > 1) text << "  lane " << lane << "\n";
      for (const Step& step : schedule.steps) {
        if (step.lane == lane) text << "    " << to_string(schedule, step) << "\n";
      }
    }
  }
  return text.str();
}

struct Case {
  Collective collective;
  const char* name;
  int size;
  int root;
  const char* hosts = nullptr;  // HostMap::parse
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << collective_name(c.collective) << " " << c.name << " of " << c.size;
}

class Golden : public ::testing::TestWithParam<Case> {};

TEST_P(Golden, IsUnchanged) {
  const Case& c = GetParam();
  const Algorithm* a = find_algorithm(c.collective, c.name);
  ASSERT_NE(a, nullptr);
  const char* folder = std::getenv("TR_TEST_GOLDEN_DIR");
  ASSERT_NE(folder, nullptr) << "set TR_TEST_GOLDEN_DIR to tests/golden";
  std::optional<HostMap> hosts;
  if (c.hosts != nullptr) hosts.emplace(HostMap::parse(c.hosts).value());
  const std::string of = hosts ? hosts->text() : std::to_string(c.size);
  const std::string path = std::string(folder) + "/" + full_name(*a) + "_" + of + ".txt";
  const std::string now = rendered(*a, c.size, c.root, hosts ? &*hosts : nullptr);
  if (std::getenv("TR_TEST_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << now;
  std::ifstream file(path);
  ASSERT_TRUE(file.is_open()) << path;
  std::ostringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(now, golden.str()) << path;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return full_name(*find_algorithm(info.param.collective, info.param.name));
}

INSTANTIATE_TEST_SUITE_P(
    , Golden,
    ::testing::Values(
        Case{Collective::kAllReduce, "ring", 4, 0}, Case{Collective::kAllReduce, "tree", 5, 0},
        Case{Collective::kAllReduce, "two_shot", 4, 0},
        Case{Collective::kAllReduce, "halving_doubling", 6, 0},
        Case{Collective::kAllReduce, "window", 3, 0},
        Case{Collective::kAllReduce, "window_one_shot", 3, 0},
        Case{Collective::kReduce, "chain", 4, 1}, Case{Collective::kBroadcast, "tree", 6, 2},
        Case{Collective::kBroadcast, "binomial", 6, 1},
        Case{Collective::kBroadcast, "window", 3, 1}, Case{Collective::kAllGather, "bruck", 5, 0},
        Case{Collective::kScatter, "binomial", 6, 0}, Case{Collective::kAllToAll, "bruck", 5, 0},
        Case{Collective::kScatter, "window", 3, 1}, Case{Collective::kAllToAll, "pairwise", 3, 0},
        Case{Collective::kAllToAll, "window", 3, 0},
        Case{Collective::kBarrier, "dissemination", 5, 0}, Case{Collective::kExscan, "chain", 4, 0},
        Case{Collective::kAllReduce, "two_level", 3, 0, "2+1"},
        Case{Collective::kAllReduce, "two_level_tree", 4, 0, "2x2"},
        Case{Collective::kAllReduce, "two_level_doubling", 4, 0, "2x2"},
        Case{Collective::kBroadcast, "two_level", 4, 3, "1+3"}),
    case_name);

}  // namespace
}  // namespace treering::algos
