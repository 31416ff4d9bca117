// What `treering doctor` says of machines that nobody here has.
#include <algorithm>
#include <gtest/gtest.h>
#include <string>

#include "cli/doctor/facts.hpp"

namespace treering::doctor {
namespace {

Facts healthy() {
  Facts f;
  f.kernel = "6.1.0";
  f.libc = "2.36";
  f.treering = "0.1.0";
  f.host_name = "node1";
  f.name_addresses = {"10.0.0.1"};
  f.shm_bytes = 64 << 20;
  f.available_bytes = std::uint64_t{8} << 30;
  f.open_files = {1024, 4096};
  f.locked_bytes = {8 << 20, 8 << 20};
  f.cpus = f.allowed_cpus = 8;
  f.interfaces = {{"lo", true, true, false, {"127.0.0.1"}},
                  {"eth0", true, false, false, {"10.0.0.1"}}};
  f.trials = {{"127.0.0.1", 4000, ""}, {"10.0.0.1", 4001, ""}};
  f.clock_source = "tsc";
  f.clock_ns = 20;
  return f;
}

// The findings of this name that are not fine; every one must say what to do.
std::vector<Finding> trouble(const Facts& facts, int ranks, const std::string& check) {
  std::vector<Finding> found;
  for (const Finding& f : judge(facts, ranks)) {
    if (f.level == Level::kFine) continue;
    EXPECT_NE(f.advice, "") << f.check;
    if (f.check == check) found.push_back(f);
  }
  return found;
}

TEST(Doctor, HealthyMachineHasNoTrouble) {
  for (const Finding& f : judge(healthy(), 8))
    EXPECT_EQ(f.level, Level::kFine) << f.check << f.text;
}

struct Case {
  const char* check;
  Level level;
  int ranks;
  void (*spoil)(Facts&);
  std::vector<std::string> words;  // of text and advice
};

class Trouble : public testing::TestWithParam<Case> {};

TEST_P(Trouble, IsFoundAlone) {
  const Case& c = GetParam();
  Facts facts = healthy();
  c.spoil(facts);
  const std::vector<Finding> found = trouble(facts, c.ranks, c.check);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].level, c.level);
  for (const std::string& word : c.words)
    EXPECT_NE((found[0].text + "\n" + found[0].advice).find(word), std::string::npos)
        << word << " is missing in " << found[0].text << "\n"
        << found[0].advice;
  const auto all = judge(facts, c.ranks);
  EXPECT_EQ(std::count_if(all.begin(), all.end(),
                          [](const Finding& f) { return f.level != Level::kFine; }),
            1);
}

const Case kCases[] = {
    {"shared memory",
     Level::kProblem,
     8,
     [](Facts& f) { f.memory_file_error = "memfd_create: Operation not permitted"; },
     {"memfd_create: Operation not permitted", "seccomp"}},
    {"processes", Level::kNote, 8, [](Facts& f) { f.pidfd_works = false; }, {"pidfd_open"}},
    // 28 pairs of 768 KiB are 21 MiB.
    {"memory",
     Level::kProblem,
     8,
     [](Facts& f) { f.cgroup_bytes = 4 << 20; },
     {"4096 KiB", "control group", "21504 KiB", "TR_LINK_BYTES"}},
    {"memory", Level::kProblem, 8, [](Facts& f) { f.available_bytes = 4 << 20; }, {"fewer ranks"}},
    {"limit of open files",
     Level::kProblem,
     8,
     [](Facts& f) {
       f.open_files = {32, 4096};
     },
     {"32 of at most 4096", "about 48", "ulimit -n 4096"}},
    {"limit of open files",
     Level::kProblem,
     8,
     [](Facts& f) {
       f.open_files = {32, 32};
     },
     {"32 of at most 32", "about 48", "hard limit"}},
    // H29: registering memory needs what the limit does not give.
    {"limit of locked memory",
     Level::kProblem,
     8,
     [](Facts& f) {
       f.locked_bytes = {64 << 10, 64 << 10};
       f.rdma = {{"mlx5_0:1", "4: ACTIVE"}};
     },
     {"64 KiB", "memlock"}},
    {"limit of address space",
     Level::kProblem,
     8,
     [](Facts& f) {
       f.address_bytes = {1 << 20, kUnlimited};
     },
     {"ulimit -v"}},
    {"limit of processes",
     Level::kProblem,
     8,
     [](Facts& f) {
       f.processes = {10, 10};
     },
     {"at most 10", "ulimit -u"}},
    {"CPUs", Level::kNote, 8, [](Facts& f) { f.cpu_quota = 1.5; }, {"1.50", "--cpus"}},
    {"ranks and CPUs", Level::kNote, 16, [](Facts&) {}, {"16 ranks share 8 CPUs", "taskset"}},
    {"load", Level::kNote, 8, [](Facts& f) { f.runnable = 6; }, {"6 other threads"}},
    {"interfaces",
     Level::kNote,
     8,
     [](Facts& f) {
       f.interfaces = {{"lo", true, true, false, {"127.0.0.1"}}};
     },
     {"no interface but loopback"}},
    // H20: what Debian's installer writes.
    {"host name",
     Level::kNote,
     8,
     [](Facts& f) { f.name_addresses = {"127.0.1.1"}; },
     {"127.0.1.1", "other hosts cannot reach", "/etc/hosts"}},
    {"host name",
     Level::kNote,
     8,
     [](Facts& f) {
       f.name_addresses.clear();
       f.name_error = "Name or service not known";
     },
     {"cannot be resolved"}},
    {"ports",
     Level::kProblem,
     8,
     [](Facts& f) { f.trials[1].error = "connect: no answer within 1 s (filtered?)"; },
     {"10.0.0.1 port 4001", "filtered", "nft list ruleset"}},
    {"clock", Level::kNote, 8, [](Facts& f) { f.clock_ns = 1200; }, {"tsc", "1200 ns"}},
    {"time", Level::kNote, 8, [](Facts& f) { f.clock_is_synchronized = false; }, {"NTP"}},
    {"GPUs",
     Level::kProblem,
     8,
     [](Facts& f) {
       f.has_nvidia_device = true;
       f.nvml_error = "libnvidia-ml.so.1: cannot open shared object file";
     },
     {"libnvidia-ml.so.1", "--gpus all"}},
    {"GPU peer access",
     Level::kProblem,
     8,
     [](Facts& f) {
       f.gpus = {{"0000:01:00.0", "A", false, {true, false}},
                 {"0000:02:00.0", "B", false, {true, true}}};
     },
     {"0 -> 1", "ACS"}},
    {"GPU instances",
     Level::kNote,
     8,
     [](Facts& f) {
       f.gpus = {{"0000:01:00.0", "A", true, {true}}};
     },
     {"MIG", "0000:01:00.0"}},
    {"RDMA ports",
     Level::kNote,
     8,
     [](Facts& f) {
       f.locked_bytes = {};
       f.rdma = {{"mlx5_0:1", "1: DOWN"}};
     },
     {"mlx5_0:1", "DOWN"}},
    {"settings",
     Level::kProblem,
     8,
     [](Facts& f) { f.unknown_variables = {"TR_TIMOUT_S"}; },
     {"TR_TIMOUT_S", "treering env"}},
    {"settings",
     Level::kProblem,
     8,
     [](Facts& f) { f.bad_setting = "TR_SPIN is \"lots\""; },
     {"lots"}},
};

INSTANTIATE_TEST_SUITE_P(Machines, Trouble, testing::ValuesIn(kCases));

}  // namespace
}  // namespace treering::doctor
