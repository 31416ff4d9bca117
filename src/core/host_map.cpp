#include "core/host_map.hpp"

#include <algorithm>
#include <charconv>
#include <map>

#include "core/config.hpp"

namespace treering {
namespace {

std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end = 0; end != std::string_view::npos;) {
    end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end != std::string_view::npos) text.remove_prefix(end + 1);
  }
  return parts;
}

Status bad_hosts(std::string_view text, const std::string& why) {
  return invalid_argument("hosts \"" + std::string(text) + "\": " + why +
                          "; write 2x4 (2 hosts of 4 ranks), 2+1 (hosts of 2 and 1 rank), or the "
                          "host of each rank, such as 0,1,0,1");
}

// 1 to kMaxRanks; 0: it is no such number.
int small_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool fits = error == std::errc() && end == text.data() + text.size();
  return fits && value >= 1 && value <= kMaxRanks ? value : 0;
}

}  // namespace

HostMap::HostMap(const std::vector<int>& host_of_rank) {
  std::map<int, std::int32_t> number;
  std::vector<std::vector<std::int32_t>> members;
  for (const int name : host_of_rank) {
    const auto [it, fresh] = number.try_emplace(name, static_cast<std::int32_t>(members.size()));
    if (fresh) members.emplace_back();
    auto& ranks = members[static_cast<std::size_t>(it->second)];
    place_.push_back(static_cast<std::int32_t>(ranks.size()));
    ranks.push_back(static_cast<std::int32_t>(host_.size()));
    host_.push_back(it->second);
  }
  first_.push_back(0);
  for (const auto& ranks : members) {
    members_.insert(members_.end(), ranks.begin(), ranks.end());
    first_.push_back(static_cast<std::int32_t>(members_.size()));
    most_ = std::max(most_, static_cast<std::int32_t>(ranks.size()));
  }
}

Result<HostMap> HostMap::parse(std::string_view text) {
  if (text.empty()) return bad_hosts(text, "it is empty");
  std::vector<int> host_of_rank;
  if (text.find(',') != std::string_view::npos) {
    std::map<std::string_view, int> number;
    for (const std::string_view name : split_at(text, ',')) {
      if (name.empty()) return bad_hosts(text, "a rank has no host");
      host_of_rank.push_back(
          number.try_emplace(name, static_cast<int>(number.size())).first->second);
    }
  } else {
    std::vector<int> sizes;
    const std::vector<std::string_view> factors = split_at(text, 'x');
    if (factors.size() == 2) {
      const int hosts = small_number(factors[0]), each = small_number(factors[1]);
      if (each == 0) return bad_hosts(text, "a host has 1 to 16384 ranks");
      sizes.assign(static_cast<std::size_t>(hosts), each);
    } else {
      for (const std::string_view size : split_at(text, '+')) sizes.push_back(small_number(size));
    }
    if (sizes.empty() || std::count(sizes.begin(), sizes.end(), 0) > 0) {
      return bad_hosts(text, "that is no list of hosts");
    }
    for (std::size_t h = 0; h < sizes.size(); ++h) {
      if (host_of_rank.size() > static_cast<std::size_t>(kMaxRanks)) break;
      host_of_rank.insert(host_of_rank.end(), static_cast<std::size_t>(sizes[h]),
                          static_cast<int>(h));
    }
  }
  if (host_of_rank.size() > static_cast<std::size_t>(kMaxRanks)) {
    return bad_hosts(text, "more than 16384 ranks");
  }
  return HostMap(host_of_rank);
}

Hosts HostMap::view() const {
  Hosts v;
  v.count = hosts();
  v.most = most_;
  v.host = host_.data();
  v.place = place_.data();
  v.first = first_.data();
  v.members = members_.data();
  return v;
}

bool HostMap::contiguous() const { return std::is_sorted(host_.begin(), host_.end()); }

std::string HostMap::text() const {
  std::string text;
  if (!contiguous()) {
    for (const std::int32_t h : host_) text += (text.empty() ? "" : ",") + std::to_string(h);
    return text;
  }
  const Hosts v = view();
  bool equal = true;
  for (int h = 0; h < v.count; ++h) equal &= v.members_of(h) == v.most;
  if (equal) return std::to_string(v.count) + "x" + std::to_string(v.most);
  for (int h = 0; h < v.count; ++h) text += (h > 0 ? "+" : "") + std::to_string(v.members_of(h));
  return text;
}

}  // namespace treering
