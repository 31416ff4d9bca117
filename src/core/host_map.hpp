// HostMap: which ranks of a communicator share a host. Owns what a Hosts view points to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hosts.hpp"
#include "core/status.hpp"

namespace treering {

class HostMap {
 public:
  // host_of_rank[r]: any number; equal ones are the same host. At least one rank.
  explicit HostMap(const std::vector<int>& host_of_rank);
  static HostMap one_host(int ranks) { return HostMap(std::vector<int>(ranks, 0)); }
  // "2x4": 2 hosts of 4 ranks. "2+1+3": hosts of 2, 1 and 3 ranks. "a,b,a": rank by rank, each
  // host a name or number; names are compared as they stand.
  static Result<HostMap> parse(std::string_view text);

  HostMap(const HostMap&) = delete;
  HostMap& operator=(const HostMap&) = delete;
  HostMap(HostMap&&) = default;
  HostMap& operator=(HostMap&&) = default;

  // Valid as long as this map, also after it was moved.
  Hosts view() const;
  int ranks() const { return static_cast<int>(host_.size()); }
  int hosts() const { return static_cast<int>(first_.size()) - 1; }
  int most_members() const { return most_; }
  // Is every host's range of ranks without a gap? Then what is folded host by host can be in rank
  // order.
  bool contiguous() const;
  std::string text() const;  // "2x4" or "2+1+3" where contiguous, else "0,1,0,1"

 private:
  std::vector<std::int32_t> host_, place_, first_, members_;
  std::int32_t most_ = 0;
};

}  // namespace treering
