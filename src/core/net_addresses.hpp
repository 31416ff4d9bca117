// Addresses of this machine and of others: which interfaces count, in which order, and listening on
// them. Everything that meets over TCP uses this: the store (bootstrap/) and the links between
// hosts (transports/tcp). Any thread may call.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "core/config.hpp"
#include "core/status.hpp"
#include "core/unique_fd.hpp"

namespace treering {

// Plain bytes, so that it travels as it is.
struct NetAddress {
  std::array<unsigned char, 16> ip{};  // IPv4: the first four
  std::uint16_t family = 0;            // AF_INET or AF_INET6
  std::uint16_t is_loopback = 0;       // reaches this machine only
  std::array<char, 16> interface {};   // its name here, zero-terminated; may be empty

  bool is_link_local() const;  // of IPv6: means nothing without an interface
};

// An interface's address, as the system tells it.
struct NetInterface {
  NetAddress address;
  bool is_up = false;  // and its cable is plugged
};
Result<std::vector<NetInterface>> list_interfaces();

// Of `all`, the addresses at which peers may try this machine, best first: addresses of bridges and
// of other insides (docker0, veth...) behind those of networks, loopback last. wanted:
// TR_INTERFACE, names of interfaces or networks in CIDR notation, separated by commas; empty: all.
// Interfaces that are down are left out, and link-local IPv6 addresses where there is another one.
// At most 16. kInvalidArgument: nothing is left, with what there is; a network that is none.
Result<std::vector<NetAddress>> choose_addresses(const std::vector<NetInterface>& all,
                                                 const std::string& wanted);
// The same, of this machine now.
Result<std::vector<NetAddress>> own_addresses(const std::string& wanted);

// "10.0.0.2", "fd00::2": no name. False: it is none.
bool parse_address(const std::string& text, NetAddress& address);
// Of a host name or an address in text; asks the system's resolver, which may take its time.
// kInvalidArgument: there is no such name.
Result<std::vector<NetAddress>> resolve_host(const std::string& host);

// With `port`, for connect(). Link-local: one for each interface here that may lead there.
std::vector<sockaddr_storage> endpoints(const NetAddress& address, std::uint16_t port);
socklen_t length_of(const sockaddr_storage& endpoint);

// "10.0.0.2:4711 (eth0)", "[fd00::2]:4711"; port 0: "10.0.0.2 (eth0)".
std::string to_string(const NetAddress& address, std::uint16_t port);

// Ports that a listener may take, as TR_PORT_RANGE says; not set: {0}, which the system chooses.
std::vector<std::uint16_t> ports_of(const PortRange& range);

// Listens, without blocking, on the first of `ports` that is free. only: at these addresses alone;
// empty: at all, of IPv4 and IPv6. Several addresses are several sockets of one port. kSystem: none
// of the ports is free.
struct Listeners {
  std::vector<UniqueFd> sockets;
  std::uint16_t port = 0;
};
Result<Listeners> listen_at(const std::vector<NetAddress>& only,
                            const std::vector<std::uint16_t>& ports);

}  // namespace treering
