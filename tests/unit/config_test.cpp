// Configuration table, deadlines, log lines, rank lists.
#include "core/config.hpp"

#include <array>
#include <cstdlib>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <thread>

#include "core/deadline.hpp"
#include "core/log.hpp"
#include "core/rank_list.hpp"

namespace treering {
namespace {

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const EnvVarInfo& var : env_table()) ::unsetenv(var.name.c_str());
  }
  void TearDown() override { SetUp(); }

  static Config load_with(const char* name, const char* value) {
    ::setenv(name, value, 1);
    auto config = load_config();
    ::unsetenv(name);
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config.ok() ? std::move(config).value() : Config{};
  }
};

TEST_F(ConfigTest, NothingSetGivesTheDefaults) {
  const auto config = load_config();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value(), Config{});
  EXPECT_EQ(config.value().timeout_ms, 300'000);
  EXPECT_EQ(config.value().init_timeout_ms, 120'000);
  EXPECT_EQ(config.value().warn_ms, 10'000);
}

TEST_F(ConfigTest, EveryPrintedDefaultReadsBackAsTheDefault) {
  for (const EnvVarInfo& var : env_table()) {
    EXPECT_EQ(load_with(var.name.c_str(), var.default_value.c_str()), Config{}) << var.name;
  }
}

TEST_F(ConfigTest, RowsAreCompleteAndDistinct) {
  std::set<std::string> names;
  for (const EnvVarInfo& var : env_table()) {
    EXPECT_TRUE(names.insert(var.name).second) << var.name;
    EXPECT_EQ(var.name.rfind("TR_", 0), 0u) << var.name;
    EXPECT_FALSE(var.type.empty()) << var.name;
    EXPECT_FALSE(var.range.empty()) << var.name;
    EXPECT_FALSE(var.meaning.empty()) << var.name;
    EXPECT_EQ(var.meaning.find('\n'), std::string::npos) << var.name;
  }
}

TEST_F(ConfigTest, ReadsEachKindOfValue) {
  EXPECT_EQ(load_with("TR_TIMEOUT_S", "2").timeout_ms, 2000);
  EXPECT_EQ(load_with("TR_TIMEOUT_S", "0.25").timeout_ms, 250);
  EXPECT_EQ(load_with("TR_TIMEOUT_S", "0").timeout_ms, 0);
  EXPECT_EQ(load_with("TR_WARN_S", "0").warn_ms, 0);
  EXPECT_EQ(load_with("TR_FLIGHT_RECORDER", "100").flight_recorder, 100);
  EXPECT_EQ(load_with("TR_SPIN", "-1").spin, -1);
  EXPECT_EQ(load_with("TR_SPIN", "1000").spin, 1000);
  EXPECT_EQ(load_with("TR_LINK_BYTES", "0").link_bytes, 0);
  EXPECT_EQ(load_with("TR_LINK_BYTES", "65536").link_bytes, 65536);
  EXPECT_EQ(load_with("TR_CAST_BYTES", "64K").cast_bytes, 65536);
  EXPECT_EQ(load_with("TR_SLICE_BYTES", "2m").slice_bytes, 2 << 20);
  EXPECT_TRUE(load_with("TR_ORDERED", "1").ordered);
  EXPECT_EQ(load_with("TR_LOG", "debug").log_level, LogLevel::kDebug);
  EXPECT_EQ(load_with("TR_HOST_ID", "node 7").host_id, "node 7");
  EXPECT_EQ(load_with("TR_TEST_HOSTS", "2x2").test_hosts, "2x2");
  EXPECT_EQ(load_with("TR_STORE_PORT", "65535").store_port, 65535);
  EXPECT_EQ(load_with("TR_PORT_RANGE", "5000").ports, (PortRange{5000, 5000}));
  EXPECT_EQ(load_with("TR_PORT_RANGE", "1-65535").ports, (PortRange{1, 65535}));
  EXPECT_EQ(load_with("TR_SECRET", "0123456789abcdef").secret, "0123456789abcdef");
  EXPECT_EQ(load_with("TR_JOB_KEY", "0123456789abcdefABCDEF0000000000").job_key,
            "0123456789abcdefABCDEF0000000000");
  const Config algos = load_with("TR_ALGO", "all_reduce:ring,broadcast:tree");
  const std::vector<AlgoChoice> expected = {{Collective::kAllReduce, "ring"},
                                            {Collective::kBroadcast, "tree"}};
  EXPECT_EQ(algos.algos, expected);
}

TEST_F(ConfigTest, ABadSecretIsNamedButNotShown) {
  for (const auto& [name, value, right] :
       {std::array{"TR_JOB_KEY", "1234", "32 hexadecimal digits"},
        {"TR_JOB_KEY", "0123456789abcdef0123456789abcdeg", "32 hexadecimal digits"},
        {"TR_SECRET", "too short", "16 characters"}}) {
    ::setenv(name, value, 1);
    const std::string text = load_config().status().message();
    ::unsetenv(name);
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_NE(text.find(right), std::string::npos) << text;
    EXPECT_EQ(text.find(value), std::string::npos) << text;
  }
}

TEST_F(ConfigTest, AnEmptyValueCountsAsNotSet) { EXPECT_EQ(load_with("TR_SPIN", ""), Config{}); }

TEST_F(ConfigTest, ABadValueIsNamedWithWhatWouldBeRight) {
  const struct {
    const char* name;
    const char* value;
    const char* right;
  } kBad[] = {
      {"TR_TIMEOUT_S", "0.001", "0.01 to 1000000, or 0: never"},
      {"TR_TIMEOUT_S", "-3", "0.01 to 1000000"},
      {"TR_TIMEOUT_S", "10s", "0.01 to 1000000"},
      {"TR_TIMEOUT_S", "nan", "0.01 to 1000000"},
      {"TR_TIMEOUT_S", "1e9", "0.01 to 1000000"},
      {"TR_WARN_S", "-1", "0: never"},
      {"TR_SPIN", "-2", "-1: chosen"},
      {"TR_SPIN", "99999999999999999999", "0 to 1000000000"},
      {"TR_LINK_BYTES", "100", "4096 to 1073741824"},
      {"TR_LINK_BYTES", "2G", "4096 to 1073741824"},
      {"TR_LINK_BYTES", "9000000000000G", "4096 to 1073741824"},
      {"TR_LINK_BYTES", "K", "4096 to 1073741824"},
      {"TR_ORDERED", "yes", "0 or 1"},
      {"TR_ORDERED", "2", "0 or 1"},
      {"TR_LOG", "verbose", "off, warn, info or debug"},
      {"TR_ALGO", "ring", "collective:algorithm"},
      {"TR_ALGO", "allreduce:ring", "all_reduce"},
      {"TR_ALGO", "send_recv:ring", "scan, exscan ("},
      {"TR_ALGO", "all_reduce:", "collective:algorithm"},
      {"TR_ALGO", "all_reduce:ring,", "collective:algorithm"},
      {"TR_STORE_PORT", "70000", "1 to 65535"},
      {"TR_PORT_RANGE", "0-5", "5000-5019"},
      {"TR_PORT_RANGE", "9-8", "5000-5019"},
      {"TR_PORT_RANGE", "1-65536", "5000-5019"},
      {"TR_PORT_RANGE", "5000-", "5000-5019"},
      {"TR_RANK", " 1", "0 to"},
      {"TR_SIZE", "0", "1 to"},
  };
  for (const auto& bad : kBad) {
    ::setenv(bad.name, bad.value, 1);
    const auto config = load_config();
    ::unsetenv(bad.name);
    ASSERT_FALSE(config.ok()) << bad.name << "=" << bad.value;
    EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
    const std::string& text = config.status().message();
    for (const std::string& part :
         {std::string(bad.name), '"' + std::string(bad.value) + '"', std::string(bad.right)}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
    }
  }
}

TEST_F(ConfigTest, NamesVariablesThatDoNotExist) {
  ::setenv("TR_TIMEOUT", "3", 1);
  ::setenv("TR_SPIN", "3", 1);
  const std::vector<std::string> unknown = unknown_env_vars();
  ::unsetenv("TR_TIMEOUT");
  EXPECT_NE(std::find(unknown.begin(), unknown.end(), "TR_TIMEOUT"), unknown.end());
  EXPECT_EQ(std::find(unknown.begin(), unknown.end(), "TR_SPIN"), unknown.end());
}

TEST(DeadlineTest, ExpiresAfterItsTimeAndNotBefore) {
  const auto begin = std::chrono::steady_clock::now();
  const Deadline deadline = Deadline::after_ms(30);
  EXPECT_GT(deadline.poll_ms(), 0);
  while (!deadline.expired()) std::this_thread::sleep_for(deadline.remaining());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(30));
  EXPECT_EQ(deadline.remaining().count(), 0);
  EXPECT_EQ(deadline.poll_ms(), 0);
}

TEST(DeadlineTest, NeverAndTheFarFuture) {
  EXPECT_FALSE(Deadline::never().expired());
  EXPECT_EQ(Deadline::never().poll_ms(), -1);
  EXPECT_TRUE(Deadline::after_ms(INT64_MAX).is_never());
  EXPECT_EQ(Deadline::after_ms(365LL * 24 * 3600 * 1000).poll_ms(), INT_MAX);
  EXPECT_TRUE(Deadline::after_ms(0).expired());
  EXPECT_FALSE(Deadline::earlier(Deadline::never(), Deadline::after_ms(5)).is_never());
}

TEST(LogTest, PrefixesEachLineAndEvaluatesNothingWhenOff) {
  set_log_level(LogLevel::kWarn);
  int evaluated = 0;
  testing::internal::CaptureStderr();
  TR_LOG_WARN(3, "two %s\nlines %d", "short", ++evaluated);
  TR_LOG_WARN(-1, "no rank");
  TR_LOG_INFO(3, "%d", ++evaluated);
  set_log_level(LogLevel::kOff);
  TR_LOG_WARN(3, "%d", ++evaluated);
  set_log_level(LogLevel::kInfo);
  TR_LOG_INFO(0, "%s", std::string(5000, 'x').c_str());
  set_log_level(LogLevel::kWarn);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "treering rank 3 warning: two short\ntreering rank 3 warning: lines 1\n"
            "treering warning: no rank\ntreering rank 0 info: " +
                std::string(5000, 'x') + "\n");
  EXPECT_EQ(evaluated, 1);
}

TEST(RankListTest, JoinsNeighboursAndCutsLongLists) {
  EXPECT_EQ(rank_list({4}), "rank 4");
  EXPECT_EQ(rank_list({4, 5}), "ranks 4, 5");
  EXPECT_EQ(rank_list({2, 5, 6, 7}), "ranks 2, 5-7");
  EXPECT_EQ(rank_list({0, 1, 2, 3}), "ranks 0-3");
  std::vector<int> even;
  for (int r = 0; r < 100; r += 2) even.push_back(r);
  EXPECT_EQ(rank_list(even), "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 38 more");
}

}  // namespace
}  // namespace treering
