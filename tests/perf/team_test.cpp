// Teams of real workers: they answer, they cost nothing while idle, and nothing of them stays.
//
// Arguments: the treering command, then NAME=WORKER for each peer that was built (mpi, gloo).
#include "cli/perf/team.hpp"

#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <signal.h>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>

namespace treering::perf {
namespace {

std::string treering_path;
std::map<std::string, std::string> workers;  // by peer

TeamSpec spec_of(const std::string& name) {
  if (name == "treering")
    return {name, {treering_path, "run", "-n", "2", "--", treering_path, "perf-worker"}};
  if (name == "gloo") return {name, {treering_path, "run", "-n", "2", "--", workers["gloo"]}};
  return {name,
          {"mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-n", "2",
           workers["mpi"]}};
}

// CPU time of all threads of a process, in clock ticks (10 ms); -1: there is no such process.
long cpu_ticks(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return -1;
  std::stringstream fields(text.substr(text.rfind(')') + 2));  // from field 3 on
  std::string word;
  for (int field = 3; field < 14; ++field) fields >> word;
  long user = 0, system = 0;
  fields >> user >> system;
  return user + system;
}

class TeamOf : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    if (name != "treering" && workers.count(name) == 0) GTEST_SKIP() << name << " was not built";
  }
};

TEST_P(TeamOf, AnswersIdlesAndEnds) {
  Interrupt interrupt;
  Teams teams;
  const Failure failure = teams.start({spec_of(GetParam())}, 2, 60, interrupt);
  ASSERT_FALSE(failure.has_value()) << *failure;
  Team& team = teams[0];
  const pid_t pids[2] = {team.worker_pid(0), team.worker_pid(1)};

  std::vector<Reply> replies;
  const auto ask = [&](Verb verb, std::uint64_t arg) {
    Command command;
    command.verb = verb;
    command.what.op = Op::kAllReduce;
    command.what.count = 1000;
    command.arg = arg;
    if (std::string(GetParam()) == "gloo") copy_text("ring", command.setting);
    const Failure answer = team.command(command, interrupt, &replies);
    EXPECT_FALSE(answer.has_value()) << *answer;
  };
  ask(Verb::kReserve, 4000);
  ask(Verb::kCheck, 7);
  EXPECT_EQ(replies[0].number + replies[1].number, 0u);
  ask(Verb::kRun, 20);
  EXPECT_GT(replies[0].number, 0u);

  // A worker that spun while idle would use about as many ticks as pass; two are for what was still
  // going on when it answered, and for the rounding of both readings.
  const long before[2] = {cpu_ticks(pids[0]), cpu_ticks(pids[1])};
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_GE(before[rank], 0);
    EXPECT_LE(cpu_ticks(pids[rank]) - before[rank], 2) << "of 50 ticks, rank " << rank;
  }

  teams.stop(true);
  for (const pid_t pid : pids)
    EXPECT_EQ(::kill(pid, 0), -1) << "worker " << pid << " is still there";
}
INSTANTIATE_TEST_SUITE_P(Libraries, TeamOf, testing::Values("treering", "mpi", "gloo"),
                         [](const auto& param) { return std::string(param.param); });

TEST(Team, ThatCannotStartSaysWhy) {
  Interrupt interrupt;
  Teams teams;
  const TeamSpec spec = {"broken", {"sh", "-c", "echo no licence today >&2; exit 3"}};
  const std::string why = teams.start({spec}, 2, 20, interrupt).value_or("");
  EXPECT_NE(why.find("broken: could not be started"), std::string::npos) << why;
  EXPECT_NE(why.find("status 3"), std::string::npos) << why;
  EXPECT_NE(why.find("no licence today"), std::string::npos) << why;
}

TEST(Team, ThatDoesNotConnectIsGivenUp) {
  Interrupt interrupt;
  Teams teams;
  const std::string why =
      teams.start({{"silent", {"sleep", "1000"}}}, 1, 0.3, interrupt).value_or("");
  EXPECT_NE(why.find("silent: only 0 of 1 workers"), std::string::npos) << why;
}

TEST(Team, StopsOnASignal) {
  Interrupt interrupt;
  Teams teams;
  ::raise(SIGINT);
  const std::string why = teams.start({{"slow", {"sleep", "1000"}}}, 1, 20, interrupt).value_or("");
  EXPECT_EQ(why, "interrupted");
  EXPECT_EQ(interrupt.signal(), SIGINT);
}

}  // namespace
}  // namespace treering::perf

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) return 2;
  treering::perf::treering_path = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string text = argv[i];
    treering::perf::workers[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  return RUN_ALL_TESTS();
}
