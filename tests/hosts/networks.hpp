// Hosts of a test's own: network namespaces on one bridge, each with an eth0. Traffic goes nowhere
// else: the test itself lives in the namespace of the bridge, and all of it ends with the test.
#pragma once

#include <string>
#include <vector>

#include "core/unique_fd.hpp"

namespace treering::test {

class Networks {
 public:
  // `hosts` hosts with 10.77.0.1, 10.77.0.2, ... on eth0, unless with_addresses is false. why(): it
  // cannot be done here (no root, no veth): the test is skipped. Single-threaded callers only.
  explicit Networks(int hosts, bool with_addresses = true);
  const std::string& why() const { return why_; }

  // Runs a shell command on a host, or between all of them (-1), where host i hangs at port<i>.
  // Aborts the test program if it fails: a test's network must be what it says.
  void run(int host, const std::string& command) const;
  // Moves the calling process (before it has threads) to a host.
  void enter(int host) const;

  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }

 private:
  bool try_run(int host, const std::string& command) const;
  std::string why_;
  std::vector<UniqueFd> hosts_;  // namespaces
};

}  // namespace treering::test
