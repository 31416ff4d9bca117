// Ranks on hosts of their own: network namespaces, joined by a veth pair. Needs root and iproute2.
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bootstrap/bootstrap.hpp"
#include "tests/unit/bootstrap_util.hpp"

namespace treering {
namespace {

// Two hosts, 10.77.0.1 and 10.77.0.2. Each also has what makes trouble in practice: a bridge of a
// container engine with the same address as the other host's, and an interface that is down.
class Hosts : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_sodium()) GTEST_SKIP() << "built without libsodium";
    if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    if (!ip("netns add " + name(0)) || !ip("netns add " + name(1))) {
      GTEST_SKIP() << "this machine makes no network namespaces (ip netns add failed)";
    }
    const std::string tag = std::to_string(::getpid());
    // Interface names have 15 characters at most.
    ASSERT_TRUE(ip("link add a" + tag + " netns " + name(0) + " type veth peer name b" + tag +
                   " netns " + name(1)));
    for (int host : {0, 1}) {
      const std::string in = "-n " + name(host) + " ";
      const std::string device = (host == 0 ? "a" : "b") + tag;
      ASSERT_TRUE(ip(in + "link set lo up"));
      ASSERT_TRUE(ip(in + "link set " + device + " name eth0"));
      ASSERT_TRUE(ip(in + "addr add " + address(host) + "/24 dev eth0"));
      ASSERT_TRUE(ip(in + "link set eth0 up"));
      if (ip(in + "link add docker0 type dummy")) {
        ASSERT_TRUE(ip(in + "addr add 172.17.0.1/16 dev docker0"));
        ASSERT_TRUE(ip(in + "link set docker0 up"));
        ASSERT_TRUE(ip(in + "link add eth9 type dummy"));
        ASSERT_TRUE(ip(in + "addr add 10.99.0.1/24 dev eth9"));
      }
    }
  }
  void TearDown() override {
    for (int host : {0, 1}) (void)ip("netns del " + name(host));
  }

  static std::string name(int host) {
    return "treering-" + std::to_string(::getpid()) + "-" + std::to_string(host);
  }
  static std::string address(int host) { return "10.77.0." + std::to_string(1 + host); }
  static bool ip(const std::string& arguments) {
    return std::system(("ip " + arguments + " 2>/dev/null").c_str()) == 0;
  }
  // body(rank) in a process of host `rank`; true if both say so.
  static bool on_hosts(const std::function<bool(int)>& body) {
    const std::string names[] = {name(0), name(1)};
    std::vector<pid_t> children;
    for (int host : {0, 1}) {
      const pid_t child = ::fork();
      if (child == 0) {
        const UniqueFd space(::open(("/run/netns/" + names[host]).c_str(), O_RDONLY | O_CLOEXEC));
        ::_exit(::setns(space.get(), CLONE_NEWNET) == 0 && body(host) ? 0 : 1);
      }
      children.push_back(child);
    }
    bool all = true;
    for (pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      all = all && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return all;
  }
};

bool meets(const IdBytes& id, int rank, const Config& config) {
  auto joined = join_root(id, 2, rank, config);
  if (!joined.ok()) ADD_FAILURE() << joined.status().message();
  return joined.ok() && exchanges_well(*joined.value(), 3);
}

TEST_F(Hosts, AUniqueIdIsEnough) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  EXPECT_TRUE(on_hosts([&](int rank) {
    IdBytes id{};
    if (rank == 0) {
      const auto made = start_root(Config{});
      if (!made.ok()) return false;
      id = made.value();
      if (::write(pipe_fds[1], id.data(), id.size()) != static_cast<ssize_t>(id.size()))
        return false;
    } else if (::read(pipe_fds[0], id.data(), id.size()) != static_cast<ssize_t>(id.size())) {
      return false;
    }
    return meets(id, rank, quick_config());
  }));
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
}

TEST_F(Hosts, MasterAddrAndASecretAreEnough) {
  EXPECT_TRUE(on_hosts([&](int rank) {
    LaunchEnv env = job_of(2, rank, "");
    env.job = "hosts";
    env.several_hosts = true;
    env.host_of_rank_0 = address(0);
    Config config = quick_config();
    config.secret = "a secret of many characters";
    config.interfaces = rank == 0 ? "10.77.0.0/16" : "";
    auto joined = join_env(env, config);
    if (!joined.ok()) ADD_FAILURE() << joined.status().message();
    return joined.ok() && exchanges_well(*joined.value(), 3);
  }));
}

TEST_F(Hosts, AStoreThatCannotBeReachedIsAnErrorWithTheAddressesTried) {
  EXPECT_TRUE(on_hosts([&](int rank) {
    if (rank == 0) return true;
    UniqueId id;
    id.port = 4711;
    for (const char* text : {"10.77.0.1", "10.99.0.1", "172.17.0.1", "127.0.0.1"}) {
      id.addresses.emplace_back();
      if (!parse_address(text, id.addresses.back())) return false;
    }
    const auto begin = Clock::now();
    const Status status = join_root(to_bytes(id), 2, 1, quick_config(10'000)).status();
    for (const char* text : {"10.77.0.1:4711: nobody listens", "10.99.0.1:4711: ",
                             "172.17.0.1:4711: ", "127.0.0.1:4711: nobody listens"}) {
      EXPECT_CONTAINS(status.message(), text);
    }
    return status.code() == Code::kRemote && seconds_since(begin) < 9 &&
           !testing::Test::HasFailure();
  }));
}

}  // namespace
}  // namespace treering
