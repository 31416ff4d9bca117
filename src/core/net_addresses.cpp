// Which addresses of a machine count, and their text.
#include "core/net_addresses.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <string_view>

namespace treering {
namespace {

constexpr std::size_t kMostAddresses = 16;

// Interfaces of container engines and virtual machines: their networks often end on this machine,
// and the same addresses exist on the next one.
constexpr std::string_view kInsides[] = {"docker", "br-",   "veth",    "virbr", "vnet",
                                         "podman", "cni",   "flannel", "cali",  "lxc",
                                         "lxd",    "vmnet", "vboxnet", "tunl",  "dummy",
                                         "kube-",  "weave", "nerdctl", "ifb",   "incusbr"};

bool is_inside(const NetAddress& a) {
  const std::string_view name = a.interface.data();
  return std::any_of(std::begin(kInsides), std::end(kInsides),
                     [&](std::string_view start) { return name.starts_with(start); });
}

// An entry of TR_INTERFACE that is a network: "10.1.0.0/16", or a single address.
struct Network {
  NetAddress base;
  unsigned bits = 0;
  bool holds(const NetAddress& a) const {
    if (a.family != base.family) return false;
    for (unsigned i = 0; i < bits; ++i) {
      const unsigned mask = 0x80u >> i % 8;
      if ((a.ip[i / 8] & mask) != (base.ip[i / 8] & mask)) return false;
    }
    return true;
  }
};

enum class Entry { kName, kNetwork, kBad };

Entry parse_entry(std::string_view text, Network& network) {
  const std::size_t slash = text.find('/');
  if (!parse_address(std::string(text.substr(0, slash)), network.base)) {
    return slash == text.npos ? Entry::kName : Entry::kBad;
  }
  const unsigned most = network.base.family == AF_INET ? 32 : 128;
  network.bits = most;
  if (slash == text.npos) return Entry::kNetwork;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + slash + 1, end, network.bits);
  return error == std::errc() && at == end && network.bits <= most ? Entry::kNetwork : Entry::kBad;
}

struct Wanted {
  std::vector<std::string> names;
  std::vector<Network> networks;
  bool fits(const NetAddress& a) const {
    return (names.empty() && networks.empty()) ||
           std::find(names.begin(), names.end(), a.interface.data()) != names.end() ||
           std::any_of(networks.begin(), networks.end(),
                       [&](const Network& n) { return n.holds(a); });
  }
};

Result<Wanted> parse_wanted(std::string_view text) {
  Wanted wanted;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    Network network;
    switch (parse_entry(entry, network)) {
      case Entry::kName:
        if (!entry.empty()) wanted.names.emplace_back(entry);
        break;
      case Entry::kNetwork:
        wanted.networks.push_back(network);
        break;
      case Entry::kBad:
        return invalid_argument("TR_INTERFACE holds \"" + std::string(entry) +
                                "\", which is no network such as 10.1.0.0/16 or fd00::/8");
    }
  }
  return wanted;
}

}  // namespace

bool NetAddress::is_link_local() const {
  return family == AF_INET6 && ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80;
}

Result<std::vector<NetInterface>> list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return system_error("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<NetInterface> all;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    NetInterface found;
    found.is_up = (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_RUNNING) != 0;
    NetAddress& a = found.address;
    a.family = i->ifa_addr->sa_family;
    a.is_loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
    const std::string_view name = i->ifa_name;
    name.copy(a.interface.data(), a.interface.size() - 1);
    if (a.family == AF_INET) {
      sockaddr_in in;
      std::memcpy(&in, i->ifa_addr, sizeof in);
      std::memcpy(a.ip.data(), &in.sin_addr, sizeof in.sin_addr);
    } else if (a.family == AF_INET6) {
      sockaddr_in6 in;
      std::memcpy(&in, i->ifa_addr, sizeof in);
      std::memcpy(a.ip.data(), &in.sin6_addr, sizeof in.sin6_addr);
    } else {
      continue;
    }
    all.push_back(found);
  }
  return all;
}

Result<std::vector<NetAddress>> choose_addresses(const std::vector<NetInterface>& all,
                                                 const std::string& wanted_text) {
  TR_ASSIGN_OR_RETURN(const Wanted wanted, parse_wanted(wanted_text));
  std::vector<NetAddress> usable;
  std::vector<NetAddress> insides;
  std::vector<NetAddress> link_local;
  std::vector<NetAddress> loopback;
  std::string there_is;
  for (const NetInterface& i : all) {
    const NetAddress& a = i.address;
    there_is += (there_is.empty() ? "" : ", ") + to_string(a, 0) + (i.is_up ? "" : " (down)");
    if (!i.is_up || !wanted.fits(a)) continue;
    (a.is_loopback != 0  ? loopback
     : a.is_link_local() ? link_local
     : is_inside(a)      ? insides
                         : usable)
        .push_back(a);
  }
  usable.insert(usable.end(), insides.begin(), insides.end());
  if (usable.empty() || !wanted_text.empty()) {
    usable.insert(usable.end(), link_local.begin(), link_local.end());
  }
  if (usable.size() > kMostAddresses) usable.resize(kMostAddresses);
  usable.insert(usable.end(), loopback.begin(), loopback.end());
  if (!usable.empty()) return usable;
  return invalid_argument((wanted_text.empty()
                               ? "no network interface of this host is up"
                               : "TR_INTERFACE is \"" + wanted_text +
                                     "\", but no interface that is up has such a name or address") +
                          "; there is: " + (there_is.empty() ? "none" : there_is));
}

Result<std::vector<NetAddress>> own_addresses(const std::string& wanted) {
  TR_ASSIGN_OR_RETURN(const std::vector<NetInterface> all, list_interfaces());
  return choose_addresses(all, wanted);
}

bool parse_address(const std::string& text, NetAddress& address) {
  address = {};
  if (::inet_pton(AF_INET, text.c_str(), address.ip.data()) == 1) {
    address.family = AF_INET;
    address.is_loopback = address.ip[0] == 127;
    return true;
  }
  in6_addr six;
  if (::inet_pton(AF_INET6, text.c_str(), &six) != 1) return false;
  address.family = AF_INET6;
  std::memcpy(address.ip.data(), &six, sizeof six);
  address.is_loopback = IN6_IS_ADDR_LOOPBACK(&six);
  return true;
}

std::string to_string(const NetAddress& a, std::uint16_t port) {
  char text[INET6_ADDRSTRLEN] = "?";
  (void)::inet_ntop(a.family, a.ip.data(), text, sizeof text);
  std::string whole = a.family == AF_INET6 && port != 0 ? "[" + std::string(text) + "]" : text;
  if (port != 0) whole += ":" + std::to_string(port);
  if (a.interface[0] == '\0') return whole;
  return whole + " (" + std::string(a.interface.data()) + ")";
}

}  // namespace treering
