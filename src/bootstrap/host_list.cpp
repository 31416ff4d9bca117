#include "bootstrap/host_list.hpp"

#include <algorithm>
#include <cctype>

namespace treering {

std::string first_of_host_list(std::string_view list) {
  std::string name;
  for (std::size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] != '[') {
      name += list[at++];
      continue;
    }
    // The first of the numbers and ranges in the brackets; digits only, zeros in front count.
    const std::size_t end = list.find(']', at);
    if (end == list.npos) return {};
    std::size_t digits = at + 1;
    while (digits < end && std::isdigit(static_cast<unsigned char>(list[digits])) != 0) {
      name += list[digits++];
    }
    if (digits == at + 1 || (list[digits] != '-' && list[digits] != ',' && digits != end))
      return {};
    at = end + 1;
  }
  const bool is_name = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_' || c == ':';
  });
  return is_name ? name : std::string();
}

}  // namespace treering
