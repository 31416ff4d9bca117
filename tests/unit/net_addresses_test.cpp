// Which addresses of a machine count, in which order; listening on them.
#include "core/net_addresses.hpp"

#include <gtest/gtest.h>
#include <set>

#include "tests/unit/bootstrap_util.hpp"

namespace treering {
namespace {

NetInterface interface_of(const std::string& name, const std::string& ip, bool is_up = true) {
  NetInterface i;
  EXPECT_TRUE(parse_address(ip, i.address)) << ip;
  name.copy(i.address.interface.data(), i.address.interface.size() - 1);
  i.is_up = is_up;
  return i;
}

// A development machine as they are.
std::vector<NetInterface> machine() {
  return {interface_of("lo", "127.0.0.1"),
          interface_of("lo", "::1"),
          interface_of("docker0", "172.17.0.1", false),
          interface_of("br-3f2a", "172.18.0.1"),
          interface_of("veth12", "fe80::42:1"),
          interface_of("eth0", "10.1.2.3"),
          interface_of("eth0", "fd00::3"),
          interface_of("eth0", "fe80::3"),
          interface_of("eth1", "192.168.7.3"),
          interface_of("ib0", "10.9.0.3", false)};
}

std::string chosen(const std::string& wanted, std::vector<NetInterface> all = machine()) {
  const auto addresses = choose_addresses(all, wanted);
  if (!addresses.ok()) return "error: " + addresses.status().message();
  std::string text;
  for (const NetAddress& a : addresses.value()) text += (text.empty() ? "" : " ") + to_string(a, 9);
  return text;
}

TEST(NetAddresses, NetworksFirstInsidesNextLoopbackLast) {
  EXPECT_EQ(chosen(""),
            "10.1.2.3:9 (eth0) [fd00::3]:9 (eth0) 192.168.7.3:9 (eth1) 172.18.0.1:9 (br-3f2a) "
            "127.0.0.1:9 (lo) [::1]:9 (lo)");
}

TEST(NetAddresses, NamesAndNetworksAreExact) {
  EXPECT_EQ(chosen("eth1"), "192.168.7.3:9 (eth1)");
  EXPECT_EQ(chosen("192.168.0.0/16"), "192.168.7.3:9 (eth1)");
  EXPECT_EQ(chosen("eth1,10.0.0.0/8"), "10.1.2.3:9 (eth0) 192.168.7.3:9 (eth1)");
  EXPECT_EQ(chosen("fd00::/8"), "[fd00::3]:9 (eth0)");
  EXPECT_EQ(chosen("10.1.2.3"), "10.1.2.3:9 (eth0)");
  EXPECT_EQ(chosen("lo"), "127.0.0.1:9 (lo) [::1]:9 (lo)");
  EXPECT_EQ(chosen("br-3f2a"), "172.18.0.1:9 (br-3f2a)");
  EXPECT_EQ(chosen("0.0.0.0/0"),
            "10.1.2.3:9 (eth0) 192.168.7.3:9 (eth1) 172.18.0.1:9 (br-3f2a) 127.0.0.1:9 (lo)");
  EXPECT_EQ(chosen("eth0"), "10.1.2.3:9 (eth0) [fd00::3]:9 (eth0) [fe80::3]:9 (eth0)");
}

TEST(NetAddresses, LinkLocalOnlyWhereThereIsNothingElse) {
  EXPECT_EQ(chosen("", {interface_of("eth0", "fe80::3"), interface_of("lo", "::1")}),
            "[fe80::3]:9 (eth0) [::1]:9 (lo)");
}

TEST(NetAddresses, WhatDoesNotFitIsAnErrorWithWhatThereIs) {
  for (const char* wanted : {"eth", "eth00", "ib0", "docker0", "11.0.0.0/8"}) {
    EXPECT_CONTAINS(chosen(wanted), "error: TR_INTERFACE is \"" + std::string(wanted));
    EXPECT_CONTAINS(chosen(wanted), "10.1.2.3 (eth0)");
    EXPECT_CONTAINS(chosen(wanted), "10.9.0.3 (ib0) (down)");
  }
  for (const char* wanted : {"10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "fd00::/129", "eth0/8"}) {
    EXPECT_CONTAINS(chosen(wanted), "which is no network");
  }
  EXPECT_CONTAINS(chosen("", {}), "error: no network interface of this host is up; there is: none");
}

TEST(NetAddresses, AHundredAddressesAreCut) {
  std::vector<NetInterface> all;
  for (int i = 1; i <= 100; ++i) all.push_back(interface_of("eth0", "10.0.0." + std::to_string(i)));
  EXPECT_EQ(choose_addresses(all, "").value().size(), 16u);
}

TEST(NetAddresses, ThisMachineHasSome) {
  const auto own = own_addresses("");
  ASSERT_TRUE(own.ok()) << own.status().message();
  EXPECT_FALSE(own.value().empty());
}

TEST(NetAddresses, NamesResolveOrAreNamed) {
  EXPECT_EQ(to_string(resolve_host("10.0.0.7").value()[0], 0), "10.0.0.7");
  EXPECT_EQ(to_string(resolve_host("::1").value()[0], 5), "[::1]:5");
  const auto local = resolve_host("localhost");
  ASSERT_TRUE(local.ok()) << local.status().message();
  EXPECT_TRUE(local.value()[0].is_loopback);
  // RFC 6761: never resolves.
  EXPECT_CONTAINS(resolve_host("nobody.invalid").status().message(), "\"nobody.invalid\"");
  EXPECT_EQ(resolve_host("").status().code(), Code::kInvalidArgument);
}

TEST(NetAddresses, ListensOnAPortOfTheRangeAndNamesARangeThatIsTaken) {
  const UniqueFd taken = listen_on(0);
  sockaddr_in name{};
  socklen_t length = sizeof name;
  ASSERT_EQ(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&name), &length), 0);
  const int port = ntohs(name.sin_port);
  NetAddress loopback;
  ASSERT_TRUE(parse_address("127.0.0.1", loopback));
  for (const std::vector<NetAddress>& at : {std::vector<NetAddress>{}, {loopback}}) {
    const auto refused = listen_at(at, ports_of({port, port}));
    EXPECT_EQ(refused.status().code(), Code::kSystem);
    EXPECT_CONTAINS(refused.status().message(), "port " + std::to_string(port));
  }
  std::vector<std::uint16_t> ports = {static_cast<std::uint16_t>(port), 0};
  const auto free = listen_at({loopback}, ports);
  ASSERT_TRUE(free.ok()) << free.status().message();
  EXPECT_NE(free.value().port, port);
  EXPECT_EQ(ports_of({5, 7}), (std::vector<std::uint16_t>{5, 6, 7}));
  EXPECT_EQ(ports_of({}), std::vector<std::uint16_t>{0});
}

TEST(NetAddresses, EveryListenerIsReached) {
  NetAddress four, six;
  ASSERT_TRUE(parse_address("127.0.0.1", four) && parse_address("::1", six));
  std::vector<NetAddress> both = {four, six};
  if (!listen_at({six}, {0}).ok()) both = {four};  // a machine without IPv6
  for (const std::vector<NetAddress>& at : {std::vector<NetAddress>{}, both}) {
    const auto listeners = listen_at(at, {0});
    ASSERT_TRUE(listeners.ok()) << listeners.status().message();
    EXPECT_EQ(listeners.value().sockets.size(), at.empty() ? 1 : at.size());
    for (const NetAddress& a : both) {
      const sockaddr_storage to = endpoints(a, listeners.value().port)[0];
      const UniqueFd fd(::socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), length_of(to)), 0)
          << to_string(a, listeners.value().port);
    }
  }
}

}  // namespace
}  // namespace treering
