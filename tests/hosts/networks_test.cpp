// Communicators between hosts of their own (network namespaces): ways that work, ways that do not,
// and what is said when they end.
#include "tests/hosts/networks.hpp"

#include <chrono>
#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <unistd.h>
#include <vector>

#include "comm/collectives.hpp"
#include "comm/communicator.hpp"
#include "tests/transports/ranks.hpp"

namespace treering::test {
namespace {

using Clock = std::chrono::steady_clock;
using Hosts = std::vector<int>;  // by rank

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Config quick() {
  Config config;
  config.init_timeout_ms = 20'000;
  config.timeout_ms = 4000;
  config.warn_ms = 0;
  config.log_level = LogLevel::kOff;
  return config;
}

Status sum(Communicator& comm, std::vector<float>& data) {
  OpSpec op;
  op.op = RedOp::kSum;
  return collectives::all_reduce({comm, Type::kFloat32, nullptr}, data.data(), data.data(),
                                 data.size(), op);
}

// All-reduces of several sizes; every element is checked.
std::string reduce_all(Communicator& comm) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i)
      data[i] = static_cast<float>(i % 1000 + static_cast<std::size_t>(comm.rank()));
    TR_MUST_OK(sum(comm, data));
    const int n = comm.size();
    for (std::size_t i = 0; i < count; ++i)
      TR_MUST(data[i] == static_cast<float>(static_cast<int>(i % 1000) * n + n * (n - 1) / 2));
  }
  return "";
}

using CommBody = std::function<std::string(Communicator&, TestRendezvous&)>;

// Ranks as processes on their hosts, each with a communicator.
std::string run_on(const Networks& networks, const Hosts& hosts, const CommBody& body,
                   const Config& config = quick(), const std::vector<int>& may_die = {}) {
  ::setenv("TR_LOG", "off", 1);
  return run_processes(
      static_cast<int>(hosts.size()),
      [&](TestRendezvous& r) -> std::string {
        networks.enter(hosts[static_cast<std::size_t>(r.rank())]);
        auto comm = Communicator::create(r, config);
        TR_MUST_OK(comm.status());
        return body(*comm.value(), r);
      },
      1, may_die);
}

std::string run_sums(const Networks& networks, const Hosts& hosts, const Config& config = quick()) {
  return run_on(
      networks, hosts, [](Communicator& comm, TestRendezvous&) { return reduce_all(comm); },
      config);
}

#define TR_NETWORKS(name, ...)      \
  const Networks name(__VA_ARGS__); \
  if (!name.why().empty()) GTEST_SKIP() << name.why()

TEST(Networks, HostsReduceTogether) {
  TR_NETWORKS(networks, 4);
  EXPECT_EQ(run_sums(networks, {0, 1}), "");
  EXPECT_EQ(run_sums(networks, {0, 1, 2, 3}), "");
  EXPECT_EQ(run_sums(networks, {0, 0, 1, 1}), "");
}

// H18: any number of ranks per host, in any order.
TEST(Networks, H18UnevenAndInterleavedRanks) {
  TR_NETWORKS(networks, 3);
  for (const Hosts& hosts : {Hosts{0, 1, 1}, Hosts{0, 1, 0, 1}, Hosts{0, 1, 1, 0},
                             Hosts{1, 0, 2, 2, 2}, Hosts{0, 0, 1, 1, 1}})
    EXPECT_EQ(run_sums(networks, hosts), "");
}

TEST(Networks, Ipv6Alone) {
  TR_NETWORKS(networks, 2, false);
  for (int i = 0; i < 2; ++i)
    networks.run(i, "ip -6 addr add fd77::" + std::to_string(i + 1) + "/64 dev eth0 nodad");
  EXPECT_EQ(run_on(networks, {0, 1},
                   [](Communicator& comm, TestRendezvous&) -> std::string {
                     const std::string text = comm.explain();
                     TR_MUST(text.find("TCP: at [fd77::") != std::string::npos);
                     return reduce_all(comm);
                   }),
            "");
}

// H21: the scope of a link-local address is the receiver's own.
TEST(Networks, H21LinkLocalAddressesAlone) {
  TR_NETWORKS(networks, 2, false);
  networks.run(0,
               "ip link add aaa0 type veth peer name aaa1 && ip link set aaa0 up && "
               "ip link set aaa1 up");  // further scopes
  EXPECT_EQ(run_sums(networks, {0, 1}), "");
}

// H19: an interface with an address that leads nowhere, before the one that does, and a bridge that
// has the same address everywhere.
TEST(Networks, H19InterfacesThatLeadNowhere) {
  TR_NETWORKS(networks, 2);
  for (int i = 0; i < 2; ++i) {
    networks.run(
        i,
        "ip link add aaa0 type veth peer name aaa1 && ip link set aaa1 up && ip addr add "
        "192.168.9." +
            std::to_string(i + 1) +
            "/24 dev aaa0 && ip link set aaa0 up && "
            "ip link add docker0 type bridge && "
            "ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up && "
            "ip link add down0 type veth peer name down1 && ip addr add 10.78.0.1/24 dev down0");
  }
  EXPECT_EQ(run_sums(networks, {0, 1}), "");
  Config config = quick();
  config.interfaces = "10.77.0.0/16";
  EXPECT_EQ(
      run_on(
          networks, {0, 1},
          [](Communicator& comm, TestRendezvous&) -> std::string {
            TR_MUST(std::string(comm.explain()).find("TCP: at 10.77.0.") != std::string::npos);
            return reduce_all(comm);
          },
          config),
      "");
}

// H20: no loopback address is ever tried at another host.
TEST(Networks, H20LoopbackIsNoAddress) {
  TR_NETWORKS(networks, 2, false);
  for (int i = 0; i < 2; ++i) networks.run(i, "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6");
  Config config = quick();
  config.init_timeout_ms = 3000;  // rank 0 waits for one that cannot come
  const std::string errors = run_sums(networks, {0, 1}, config);
  EXPECT_NE(errors.find("rank 1: rank 1 cannot reach rank 0"), std::string::npos) << errors;
  EXPECT_EQ(errors.find("127.0.0.1"), std::string::npos) << errors;
}

TEST(Networks, PortsAreTakenFromTheRange) {
  TR_NETWORKS(networks, 2);
  Config config = quick();
  config.ports = {5000, 5001};
  EXPECT_EQ(run_sums(networks, {0, 0, 1}, config), "");
  config.ports = {5000, 5000};
  const std::string errors = run_sums(networks, {0, 0, 1}, config);
  EXPECT_NE(errors.find("port 5000"), std::string::npos) << errors;
}

// Who cannot be reached is named on all ranks, with the addresses, and soon.
TEST(Networks, AnUnreachableRankIsNamedWithItsAddresses) {
  TR_NETWORKS(networks, 3);
  const auto drop =
      "nft add table inet t && nft 'add chain inet t in { type filter hook input "
      "priority 0; }' && nft add rule inet t in iifname eth0 ip saddr " +
      Networks::address(2);
  networks.run(0, drop + " drop");
  networks.run(1, drop + " reject");
  Config config = quick();
  config.init_timeout_ms = 3000;
  const Clock::time_point start = Clock::now();
  const std::string errors = run_sums(networks, {0, 1, 2}, config);
  EXPECT_LT(seconds_since(start), 40.0);
  for (const char* rank : {"rank 0: ", "rank 1: ", "rank 2: "}) {
    EXPECT_NE(errors.find(rank), std::string::npos) << errors;
  }
  EXPECT_NE(errors.find("rank 2 cannot reach rank "), std::string::npos) << errors;
  EXPECT_NE(errors.find("tried 10.77.0."), std::string::npos) << errors;
}

// A slow link: 20 Mbit/s. Everything is late, nothing is wrong.
TEST(Networks, ASlowLinkIsOnlySlow) {
  TR_NETWORKS(networks, 2);
  networks.run(0, "tc qdisc add dev eth0 root tbf rate 20mbit burst 32kb latency 100ms");
  EXPECT_EQ(run_sums(networks, {0, 1}), "");
}

// What each survivor says when something happens to `victim` while all call all_reduce.
std::string survivors_say(const Networks& networks, const Hosts& hosts, int victim,
                          const std::function<void()>& harm, const std::string& expected) {
  return run_on(networks, hosts,
                [&](Communicator& comm, TestRendezvous& r) -> std::string {
                  TR_MUST_EQ(reduce_all(comm), "");
                  TR_MUST_EQ(r.barrier(), "");
                  if (comm.rank() == victim) harm();
                  Status status;
                  const Clock::time_point start = Clock::now();
                  while (status.ok()) {
                    std::vector<float> data(50'000, 1.0f);
                    status = sum(comm, data);
                    TR_MUST(seconds_since(start) < 60);
                  }
                  if (comm.rank() == victim) return "";
                  if (status.message().find(expected) == std::string::npos) return status.message();
                  return "";
                },
                quick(), {victim});
}

TEST(Networks, AKilledRankIsNamed) {
  TR_NETWORKS(networks, 2);
  const auto harm = [] { ::kill(::getpid(), SIGKILL); };
  EXPECT_EQ(survivors_say(networks, {0, 1}, 1, harm, "rank 1"), "");
  EXPECT_EQ(survivors_say(networks, {0, 0, 1, 1}, 2, harm, "rank 2"), "");
}

TEST(Networks, AStoppedRankIsNamed) {
  TR_NETWORKS(networks, 2);
  // It stops, and is killed by the kernel's alarm so that the test ends.
  const auto harm = [] {
    const pid_t me = ::getpid();
    if (::fork() == 0) {
      ::sleep(12);
      ::kill(me, SIGKILL);
      ::_exit(0);
    }
    ::kill(me, SIGSTOP);
  };
  EXPECT_EQ(survivors_say(networks, {0, 1, 0}, 1, harm, "rank 1"), "");
}

// A cut without a word, in both directions or in one: the deadline ends it, and the rank is named.
TEST(Networks, ACutNetworkIsAnErrorThatNamesTheRank) {
  for (const bool one_way : {false, true}) {
    TR_NETWORKS(networks, 2);
    networks.run(1,
                 "nft add table inet t && nft 'add chain inet t in { type filter hook input "
                 "priority 0; }' && nft 'add chain inet t out { type filter hook output "
                 "priority 0; }'");
    const auto harm = [&] {
      const std::string in = "nft add rule inet t in iifname eth0 drop";
      networks.run(1, one_way ? in : in + " && nft add rule inet t out oifname eth0 drop");
    };
    EXPECT_EQ(survivors_say(networks, {0, 1}, 1, harm, "rank 1"), "") << one_way;
  }
}

}  // namespace
}  // namespace treering::test
