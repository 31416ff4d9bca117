// Names to addresses, addresses to sockets.
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include "core/net_addresses.hpp"

namespace treering {
namespace {

sockaddr_storage endpoint_of(const NetAddress& a, std::uint16_t port, unsigned scope) {
  sockaddr_storage storage{};
  if (a.family == AF_INET) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, a.ip.data(), sizeof in.sin_addr);
    std::memcpy(&storage, &in, sizeof in);
  } else {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    in.sin6_scope_id = scope;
    std::memcpy(&in.sin6_addr, a.ip.data(), sizeof in.sin6_addr);
    std::memcpy(&storage, &in, sizeof in);
  }
  return storage;
}

NetAddress address_of(const sockaddr* from) {
  NetAddress a;
  a.family = from->sa_family;
  if (a.family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, from, sizeof in);
    std::memcpy(a.ip.data(), &in.sin_addr, sizeof in.sin_addr);
    a.is_loopback = a.ip[0] == 127;
  } else if (a.family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, from, sizeof in);
    std::memcpy(a.ip.data(), &in.sin6_addr, sizeof in.sin6_addr);
    a.is_loopback = IN6_IS_ADDR_LOOPBACK(&in.sin6_addr);
  }
  return a;
}

// dual: an IPv6 socket takes IPv4 too. On failure errno says why.
UniqueFd listener_at(const sockaddr_storage& endpoint, bool dual) {
  UniqueFd fd(::socket(endpoint.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fd;
  // Connections of an earlier listener may still be in TIME_WAIT; a live one is refused.
  const int on = 1;
  const int only_v6 = dual ? 0 : 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (endpoint.ss_family == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6);
  }
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&endpoint), length_of(endpoint)) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

std::uint16_t port_of(const UniqueFd& fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return 0;
  in_port_t port = 0;  // at the same place in both families
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  std::memcpy(&port, reinterpret_cast<const char*>(&storage) + offsetof(sockaddr_in, sin_port),
              sizeof port);
  return ntohs(port);
}

// On failure errno says why; nothing stays open.
Listeners listen_on_port(const std::vector<NetAddress>& only, std::uint16_t port) {
  Listeners all;
  if (only.empty()) {
    NetAddress any;
    any.family = AF_INET6;
    UniqueFd fd = listener_at(endpoint_of(any, port, 0), true);
    if (!fd.valid() && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)) {
      any.family = AF_INET;
      fd = listener_at(endpoint_of(any, port, 0), false);
    }
    if (!fd.valid()) return all;
    all.port = port_of(fd);
    all.sockets.push_back(std::move(fd));
    return all;
  }
  for (const NetAddress& a : only) {
    const unsigned scope = a.is_link_local() ? ::if_nametoindex(a.interface.data()) : 0;
    UniqueFd fd = listener_at(endpoint_of(a, all.port != 0 ? all.port : port, scope), false);
    if (!fd.valid()) {
      const int error = errno;
      all = {};
      errno = error;
      return all;
    }
    all.port = port_of(fd);
    all.sockets.push_back(std::move(fd));
  }
  return all;
}

}  // namespace

Result<std::vector<NetAddress>> resolve_host(const std::string& host) {
  NetAddress numeric;
  if (parse_address(host, numeric)) return std::vector<NetAddress>{numeric};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    return invalid_argument("cannot resolve the host name \"" + host + "\": " +
                            (error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  std::vector<NetAddress> all;
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    const NetAddress a = address_of(i->ai_addr);
    const bool is_new = std::none_of(all.begin(), all.end(), [&](const NetAddress& other) {
      return other.family == a.family && other.ip == a.ip;
    });
    if (is_new && (a.family == AF_INET || a.family == AF_INET6)) all.push_back(a);
  }
  return all;
}

std::vector<sockaddr_storage> endpoints(const NetAddress& a, std::uint16_t port) {
  if (!a.is_link_local()) return {endpoint_of(a, port, 0)};
  // The peer's scope means nothing here: any interface of ours with such an address may lead there.
  std::vector<sockaddr_storage> all;
  const Result<std::vector<NetInterface>> ours = list_interfaces();
  if (!ours.ok()) return all;
  for (const NetInterface& i : ours.value()) {
    if (!i.address.is_link_local() || !i.is_up) continue;
    all.push_back(endpoint_of(a, port, ::if_nametoindex(i.address.interface.data())));
  }
  return all;
}

socklen_t length_of(const sockaddr_storage& endpoint) {
  return endpoint.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

std::vector<std::uint16_t> ports_of(const PortRange& range) {
  std::vector<std::uint16_t> ports;
  for (int port = range.first; port <= range.last; ++port) {
    ports.push_back(static_cast<std::uint16_t>(port));
  }
  return ports;
}

Result<Listeners> listen_at(const std::vector<NetAddress>& only,
                            const std::vector<std::uint16_t>& ports) {
  // A port that the system gives at one address may be taken at the next.
  constexpr int kTries = 16;
  int error = EADDRINUSE;
  for (std::uint16_t port : ports) {
    for (int i = 0; i < (port == 0 ? kTries : 1); ++i) {
      Listeners listeners = listen_on_port(only, port);
      if (!listeners.sockets.empty()) return listeners;
      error = errno;
      if (error != EADDRINUSE && error != EACCES) break;
    }
  }
  std::string text = "cannot listen on ";
  if (ports.size() > 1) {
    const auto [least, most] = std::minmax_element(ports.begin(), ports.end());
    text += "any of " + std::to_string(ports.size()) + " ports between " + std::to_string(*least) +
            " and " + std::to_string(*most);
  } else if (!ports.empty()) {
    text += "port " + std::to_string(ports[0]);
  }
  if (!only.empty()) text += " of " + to_string(only[0], 0);
  return system_error(text, error);
}

}  // namespace treering
