#include "cli/doctor/network.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <ifaddrs.h>
#include <map>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include "core/unique_fd.hpp"

namespace treering::doctor {
namespace {

constexpr int kTrialMs = 1000;

socklen_t length_of(const sockaddr* address) {
  return address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

std::string number_of(const sockaddr* address) {
  char host[NI_MAXHOST];
  const int error =
      ::getnameinfo(address, length_of(address), host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? host : "";
}

bool is_virtual(const std::string& name) {
  std::error_code ignored;
  const std::filesystem::path folder = "/sys/class/net/" + name;
  for (const char* mark : {"bridge", "brport", "tun_flags"})
    if (std::filesystem::exists(folder / mark, ignored)) return true;
  for (const char* prefix : {"veth", "docker", "br-", "virbr", "cni", "flannel", "cali"})
    if (name.starts_with(prefix)) return true;
  return false;
}

bool wait_for(int fd, short events) {
  pollfd p{fd, events, 0};
  return ::poll(&p, 1, kTrialMs) > 0;
}

// "" if a byte goes from this machine to itself by this address. port 0: any.
std::string try_port(sockaddr* address, int* port) {
  const auto text = [](const char* what) {
    return std::string(what) + ": " + std::strerror(errno);
  };
  auto* const v4 = reinterpret_cast<sockaddr_in*>(address);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(address);
  in_port_t& number = address->sa_family == AF_INET6 ? v6->sin6_port : v4->sin_port;
  number = htons(static_cast<std::uint16_t>(*port));
  constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC;
  const UniqueFd listener(::socket(address->sa_family, kType, 0));
  const UniqueFd client(::socket(address->sa_family, kType | SOCK_NONBLOCK, 0));
  if (!listener.valid() || !client.valid()) return text("socket");
  const int on = 1;
  (void)::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.get(), address, length_of(address)) != 0) return text("bind");
  if (::listen(listener.get(), 1) != 0) return text("listen");
  socklen_t length = length_of(address);
  if (::getsockname(listener.get(), address, &length) != 0) return text("getsockname");
  *port = ntohs(number);
  if (::connect(client.get(), address, length) != 0 && errno != EINPROGRESS) return text("connect");
  if (!wait_for(listener.get(), POLLIN)) return "connect: no answer within 1 s (filtered?)";
  const UniqueFd server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!server.valid()) return text("accept");
  char byte = 'x';
  if (!wait_for(client.get(), POLLOUT) || ::send(client.get(), &byte, 1, MSG_NOSIGNAL) != 1)
    return text("send");
  if (!wait_for(server.get(), POLLIN) || ::recv(server.get(), &byte, 1, 0) != 1)
    return "receive: nothing came within 1 s";
  return "";
}

void gather_names(Facts& f) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(f.host_name.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    f.name_error = ::gai_strerror(error);
    return;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next)
    f.name_addresses.push_back(number_of(a->ai_addr));
}

}  // namespace

void gather_network(Facts& f, int store_port) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
    std::map<std::string, Interface> by_name;
    for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next) {
      Interface& i = by_name[a->ifa_name];
      i.name = a->ifa_name;
      i.is_up = (a->ifa_flags & IFF_UP) != 0 && (a->ifa_flags & IFF_RUNNING) != 0;
      i.is_loopback = (a->ifa_flags & IFF_LOOPBACK) != 0;
      i.is_virtual = is_virtual(i.name);
      if (a->ifa_addr == nullptr ||
          (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6))
        continue;
      i.addresses.push_back(number_of(a->ifa_addr));
      if (!i.is_up) continue;
      sockaddr_storage address{};
      std::memcpy(&address, a->ifa_addr, length_of(a->ifa_addr));
      for (int port : {0, store_port}) {
        const bool is_last = store_port == 0;
        std::string error = try_port(reinterpret_cast<sockaddr*>(&address), &port);
        f.trials.push_back({i.addresses.back(), port, std::move(error)});
        if (is_last) break;
      }
    }
    for (auto& [name, interface] : by_name) f.interfaces.push_back(std::move(interface));
  }
  gather_names(f);
}

}  // namespace treering::doctor
