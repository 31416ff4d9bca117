#include "transports/find_hosts.hpp"

#include <algorithm>
#include <fstream>
#include <sys/stat.h>

#include "transports/exchange.hpp"

namespace treering {
namespace {

constexpr std::size_t kHostIdBytes = 128;

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);  // empty if it cannot be read: the hand-over will tell
  return id;
}

std::string in_this_network(const std::string& name) {
  return name + " " + std::to_string(namespace_number("net"));
}

}  // namespace

std::uint64_t namespace_number(const char* kind) {
  struct stat info {};
  return ::stat((std::string("/proc/self/ns/") + kind).c_str(), &info) == 0 ? info.st_ino : 0;
}

std::string machine_name() { return in_this_network(boot_id()); }

Result<std::vector<int>> find_hosts(Rendezvous& rendezvous, const std::string& host_id) {
  Status status;
  if (host_id.size() > kHostIdBytes) {
    status = invalid_argument("the host id (TR_HOST_ID) is longer than " +
                              std::to_string(kHostIdBytes) + " bytes");
  }
  TR_ASSIGN_OR_RETURN(
      const std::vector<std::string> names,
      exchange_bytes(rendezvous, status, in_this_network(host_id.empty() ? boot_id() : host_id)));
  std::vector<std::string> hosts;
  std::vector<int> host_of_rank;
  for (const std::string& name : names) {
    const auto it = std::find(hosts.begin(), hosts.end(), name);
    host_of_rank.push_back(static_cast<int>(it - hosts.begin()));
    if (it == hosts.end()) hosts.push_back(name);
  }
  return host_of_rank;
}

bool is_one_host(const std::vector<int>& host_of_rank) {
  return std::all_of(host_of_rank.begin(), host_of_rank.end(), [](int host) { return host == 0; });
}

}  // namespace treering
