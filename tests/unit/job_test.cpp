// The rendezvous of a launcher's job over the network, and the secrets that keep others out of it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/job_key.hpp"
#include "tests/unit/bootstrap_util.hpp"

// Tests fork while the thread of a store is there, and start one in the child.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace treering {
namespace {

// Each: a job of two ranks on several hosts, here both on this one.
Status join_over_the_network(int rank, const Config& config, const std::string& host) {
  LaunchEnv env = job_of(2, rank, "network ");
  env.job = "network";
  env.several_hosts = true;
  env.host_of_rank_0 = host;
  auto joined = join_env(env, config);
  if (!joined.ok()) return joined.status();
  return joined.value()->all_gather("x").status();
}

TEST(JoinEnv, OverTheNetworkWithASecret) {
  if (!has_sodium()) GTEST_SKIP() << "built without libsodium";
  for (const char* host : {"127.0.0.1", "localhost", "127.0.1.1"}) {
    on_processes(2, [&](int rank) {
      Config config = quick_config();
      config.secret = "a secret of many characters";
      const Status status = join_over_the_network(rank, config, host);
      if (!status.ok()) ADD_FAILURE() << status.message();
      return status.ok();
    });
  }
}

TEST(JoinEnv, AnotherSecretStaysOut) {
  if (!has_sodium()) GTEST_SKIP() << "built without libsodium";
  const std::uint16_t port = free_port();
  on_processes(2, [&](int rank) {
    Config config = quick_config(1500);
    config.store_port = port;
    config.secret = "a secret of many characters" + std::to_string(rank);
    const Status status = join_over_the_network(rank, config, "127.0.0.1");
    EXPECT_CONTAINS(status.message(), rank == 0 ? "rank 1 of 2 has not joined" : "another secret");
    return status.code() == Code::kTimeout && !testing::Test::HasFailure();
  });
}

TEST(JoinEnv, OneWarningWithoutASecretAndNoneWhereItIsRequired) {
  if (!has_sodium()) GTEST_SKIP() << "built without libsodium";
  on_processes(2, [&](int rank) {
    testing::internal::CaptureStderr();
    for (int i = 0; i < 3; ++i) {
      const Status status = join_over_the_network(rank, quick_config(), "127.0.0.1");
      if (!status.ok()) return false;
    }
    const std::string text = testing::internal::GetCapturedStderr();
    const std::size_t first = text.find("no secret");
    const bool once = first != text.npos && text.find("no secret", first + 1) == text.npos;
    return rank == 0 ? once : text.empty();
  });
  Config config = quick_config();
  config.require_auth = true;
  for (const bool several : {false, true}) {
    LaunchEnv env = job_of(2, 0, "x");
    env.several_hosts = several;
    const Status status = join_env(env, config).status();
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    EXPECT_CONTAINS(status.message(), "TR_SECRET");
  }
}

TEST(JoinEnv, AHostThatNobodyNamesOrKnowsIsAnError) {
  if (!has_sodium()) GTEST_SKIP() << "built without libsodium";
  const Status unnamed = join_over_the_network(1, quick_config(), "");
  EXPECT_EQ(unnamed.code(), Code::kInvalidArgument);
  EXPECT_CONTAINS(unnamed.message(), "MASTER_ADDR");
  const Status unknown = join_over_the_network(1, quick_config(), "nobody.invalid");
  EXPECT_EQ(unknown.code(), Code::kInvalidArgument);
  EXPECT_CONTAINS(unknown.message(), "nobody.invalid");
  const Status unreachable = join_over_the_network(1, quick_config(300), "192.0.2.1");
  EXPECT_FALSE(unreachable.ok());
  EXPECT_CONTAINS(unreachable.message(), "192.0.2.1:");
}

TEST(JobKeys, SecretsComeFromFilesThatOnlyTheirOwnerReads) {
  char path[] = "/tmp/treering-secret-XXXXXX";
  const UniqueFd fd(::mkstemp(path));
  ASSERT_TRUE(fd.valid());
  const std::string text = "a secret of many characters\n";
  ASSERT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  const LaunchEnv env = job_of(2, 0, "secrets ");
  Config from_file;
  from_file.secret_file = path;
  Config direct;
  direct.secret = "a secret of many characters";
  const auto a = job_key(env, from_file);
  const auto b = job_key(env, direct);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status().message();
  EXPECT_EQ(a.value().key, b.value().key);
  EXPECT_TRUE(a.value().is_secret);
  EXPECT_FALSE(job_key(env, Config{}).value().is_secret);
  EXPECT_NE(job_key(job_of(2, 0, "other "), direct).value().key, b.value().key);

  const auto refusal = [&](const Config& config) {
    return job_key(env, config).status().message();
  };
  Config both = from_file;
  both.secret = direct.secret;
  EXPECT_CONTAINS(refusal(both), "both set");
  ASSERT_EQ(::fchmod(fd.get(), 0644), 0);
  EXPECT_CONTAINS(refusal(from_file), "chmod 600");
  ASSERT_EQ(::fchmod(fd.get(), 0600), 0);
  ASSERT_EQ(::ftruncate(fd.get(), 5), 0);
  EXPECT_CONTAINS(refusal(from_file), "at least 16");
  ::unlink(path);
  EXPECT_CONTAINS(refusal(from_file), "No such file");
  from_file.secret_file = "/dev/zero";
  EXPECT_CONTAINS(refusal(from_file), "is no file");
}

}  // namespace
}  // namespace treering
