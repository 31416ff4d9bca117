// What each launcher's environment says.
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/host_list.hpp"
#include "tests/unit/bootstrap_util.hpp"

namespace treering {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

class LaunchEnvTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text(*entry);
      const std::string name = text.substr(0, text.find('='));
      for (const char* prefix : {"TR_", "OMPI_", "PMI", "MPI_LOCAL", "SLURM_", "RANK", "WORLD_SIZE",
                                 "LOCAL_", "MASTER_", "TORCHELASTIC_"}) {
        if (name.rfind(prefix, 0) == 0) names.push_back(name);
      }
    }
    for (const std::string& name : names) ::unsetenv(name.c_str());
  }
  void TearDown() override { SetUp(); }

  static Result<LaunchEnv> read(const Variables& variables) {
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    auto config = load_config();
    if (!config.ok()) return config.status();
    return launch_env(config.value());
  }
  static void expect(const Variables& variables, int rank, int size, int local_rank,
                     const std::string& source) {
    const auto env = read(variables);
    ASSERT_TRUE(env.ok()) << env.status().message();
    EXPECT_EQ(env.value().rank, rank);
    EXPECT_EQ(env.value().size, size);
    EXPECT_EQ(env.value().local_rank, local_rank);
    EXPECT_EQ(env.value().local_size, size);
    EXPECT_EQ(env.value().source, source);
  }
  static void expect_error(const Variables& variables, Code code,
                           const std::vector<std::string>& parts) {
    const auto env = read(variables);
    ASSERT_FALSE(env.ok());
    EXPECT_EQ(env.status().code(), code);
    for (const std::string& part : parts) EXPECT_CONTAINS(env.status().message(), part);
  }
};

TEST_F(LaunchEnvTest, NothingMeansOneRank) {
  expect({}, 0, 1, 0, "none");
  EXPECT_EQ(read({}).value().job, "");
}

TEST_F(LaunchEnvTest, OwnVariables) {
  expect({{"TR_RANK", "2"}, {"TR_SIZE", "4"}, {"TR_LOCAL_RANK", "1"}, {"TR_LOCAL_SIZE", "4"}}, 2, 4,
         1, "treering run");
}

const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "3"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "localhost"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "run 7"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"}};
// As Open MPI 4.1.4 sets them.
const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"PMIX_NAMESPACE", "1340866561"},    {"PMIX_RANK", "1"}};
// As MPICH 4.0.2's hydra sets them; it gives the job no name.
const Variables kHydra = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},         {"SLURM_NTASKS", "8"},
                          {"SLURM_LOCALID", "5"},        {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_ID", "3"}};

TEST_F(LaunchEnvTest, Torchrun) {
  expect(kTorchrun, 3, 4, 3, "torchrun");
  const std::string job = read(kTorchrun).value().job;
  EXPECT_CONTAINS(job, "MASTER_PORT=29500");
  EXPECT_CONTAINS(job, "TORCHELASTIC_RUN_ID=run 7");
  EXPECT_NE(read({{"TORCHELASTIC_RESTART_COUNT", "1"}}).value().job, job);
}

TEST_F(LaunchEnvTest, TorchVariablesByHand) {
  expect({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, 0, 2, 0, "torchrun");
}

TEST_F(LaunchEnvTest, OpenMpi) {
  expect(kOpenMpi, 1, 2, 1, "Open MPI");
  EXPECT_EQ(read(kOpenMpi).value().job, "PMIX_NAMESPACE=1340866561");
}

TEST_F(LaunchEnvTest, Hydra) { expect(kHydra, 1, 2, 1, "PMI"); }

// Where the variable is set, this program is a rank that writes its job's name there, and no test.
class RankThatReportsItsJob : public testing::Environment {
  void SetUp() override {
    const char* fd = std::getenv("TR_TEST_JOB_PIPE");
    if (fd == nullptr) return;
    const std::string job = launch_env(Config{}).value().job;
    const ssize_t written = ::write(std::atoi(fd), job.data(), job.size());
    ::_exit(written == static_cast<ssize_t>(job.size()) ? 0 : 1);
  }
};
const testing::Environment* const kRank =
    testing::AddGlobalTestEnvironment(new RankThatReportsItsJob);

TEST_F(LaunchEnvTest, AJobWithoutANameIsNamedByWhatStartedTheRanks) {
  // Each rank sits under a shell of its own, which also has the variables: the name must not depend
  // on it.
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> jobs;
  for (const char* rank : {"0", "1"}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("PMI_RANK", rank, 1);
      ::setenv("PMI_SIZE", "2", 1);
      ::setenv("TR_TEST_JOB_PIPE", std::to_string(pipe_fds[1]).c_str(), 1);
      // ":" keeps the shell from becoming the program.
      ::execl("/bin/sh", "sh", "-c", "\"$0\" >/dev/null; :", program.c_str(), nullptr);
      ::_exit(127);
    }
    ::waitpid(child, nullptr, 0);
    char text[256];
    jobs.emplace_back(text, static_cast<std::size_t>(
                                std::max<ssize_t>(0, ::read(pipe_fds[0], text, sizeof text))));
  }
  EXPECT_EQ(jobs[0], "process " + std::to_string(::getpid()));
  EXPECT_EQ(jobs[1], jobs[0]);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
}

TEST_F(LaunchEnvTest, Slurm) {
  expect(kSlurm, 5, 8, 5, "Slurm");
  EXPECT_EQ(read(kSlurm).value().job, "SLURM_JOB_ID=77 SLURM_STEP_ID=3");
}

TEST_F(LaunchEnvTest, AnAllocationWithoutSrunIsOneRank) {
  expect({{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "8"}}, 0, 1, 0, "none");
}

TEST_F(LaunchEnvTest, TheInnermostLauncherDecides) {
  read(kSlurm).status().ok();
  expect(kOpenMpi, 1, 2, 1, "Open MPI");
  expect(kTorchrun, 3, 4, 3, "torchrun");
  expect({{"TR_RANK", "0"}, {"TR_SIZE", "2"}}, 0, 2, 0, "treering run");
}

TEST_F(LaunchEnvTest, HalfSetVariables) {
  expect_error({{"TR_RANK", "1"}}, Code::kInvalidArgument, {"TR_RANK=1", "TR_SIZE is not"});
  SetUp();
  expect_error({{"TR_SIZE", "2"}}, Code::kInvalidArgument, {"TR_SIZE=2", "TR_RANK is not"});
  SetUp();
  expect_error({{"RANK", "1"}}, Code::kInvalidArgument,
               {"RANK=1", "WORLD_SIZE is not", "torchrun"});
  SetUp();
  expect_error({{"SLURM_PROCID", "1"}}, Code::kInvalidArgument, {"SLURM_NTASKS is not"});
}

TEST_F(LaunchEnvTest, Contradictions) {
  expect_error({{"TR_RANK", "2"}, {"TR_SIZE", "2"}}, Code::kInvalidArgument,
               {"TR_RANK=2", "TR_SIZE=2", "contradict"});
  SetUp();
  expect_error({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}},
               Code::kInvalidArgument, {"LOCAL_WORLD_SIZE=3", "WORLD_SIZE=2"});
  SetUp();
  expect_error({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}}, Code::kInvalidArgument,
               {"LOCAL_RANK=2"});
}

TEST_F(LaunchEnvTest, NumbersThatAreNone) {
  expect_error({{"RANK", "first"}, {"WORLD_SIZE", "2"}}, Code::kInvalidArgument,
               {"RANK is \"first\"", "must be a number"});
  SetUp();
  expect_error({{"PMI_RANK", "-1"}, {"PMI_SIZE", "2"}}, Code::kInvalidArgument,
               {"PMI_RANK is \"-1\""});
  SetUp();
  expect_error({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2x"}},
               Code::kInvalidArgument, {"OMPI_COMM_WORLD_SIZE is \"2x\""});
}

TEST_F(LaunchEnvTest, SeveralHosts) {
  Variables torchrun = kTorchrun;
  torchrun[0].second = "5";
  torchrun[1].second = "8";
  torchrun[2].second = "1";
  torchrun[4].second = "node1";
  auto env = read(torchrun);
  ASSERT_TRUE(env.ok()) << env.status().message();
  EXPECT_TRUE(env.value().several_hosts);
  EXPECT_EQ(env.value().host_of_rank_0, "node1");
  EXPECT_EQ(env.value().rank, 5);
  EXPECT_EQ(env.value().local_rank, 1);
  EXPECT_EQ(env.value().local_size, 4);
  SetUp();
  Variables slurm = kSlurm;
  slurm[4].second = "2";
  slurm.emplace_back("SLURM_STEP_NODELIST", "gpu[07-08]");
  env = read(slurm);
  ASSERT_TRUE(env.ok()) << env.status().message();
  EXPECT_TRUE(env.value().several_hosts);
  EXPECT_EQ(env.value().host_of_rank_0, "gpu07");
  EXPECT_EQ(env.value().local_size, 0);
  // A user's MASTER_ADDR goes before it.
  EXPECT_EQ(read({{"MASTER_ADDR", "10.0.0.1"}}).value().host_of_rank_0, "10.0.0.1");
  SetUp();
  Variables hydra = kHydra;
  hydra[1].second = "4";
  env = read(hydra);
  ASSERT_TRUE(env.ok()) << env.status().message();
  EXPECT_TRUE(env.value().several_hosts);
  // Its proxies are other processes on every host.
  EXPECT_EQ(env.value().job, "");
  EXPECT_EQ(env.value().host_of_rank_0, "");
}

TEST(HostList, TheFirstNameOfSlurmsShortForm) {
  const struct {
    const char* list;
    const char* first;
  } kLists[] = {{"node1", "node1"},
                {"node1,node2", "node1"},
                {"node[08-11,20],x", "node08"},
                {"n[3]", "n3"},
                {"r[1-2]c[5,7]", "r1c5"},
                {"a[1-4]-ib.cluster", "a1-ib.cluster"},
                {"", ""},
                {",", ""},
                {"n[", ""},
                {"n[]", ""},
                {"n[x]", ""},
                {"n[1", ""},
                {"n[1x]", ""},
                {"a b", ""},
                {"$(reboot)", ""}};
  for (const auto& row : kLists) EXPECT_EQ(first_of_host_list(row.list), row.first) << row.list;
}

}  // namespace
}  // namespace treering
