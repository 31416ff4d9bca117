#include "topo/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "topo/bandwidth.hpp"

namespace treering::topo {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// Hex digits at the front of text, at most `most`; the rest is left in text.
std::optional<unsigned> take_hex(std::string_view& text, std::size_t most) {
  unsigned value = 0;
  const char* end = text.data() + std::min(text.size(), most);
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  if (error != std::errc() || stop == text.data()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return value;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (;;) {
    const std::size_t first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return words;
    text.remove_prefix(first);
    const std::size_t end = std::min(text.find_first_of(kBlank), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

std::optional<long long> parse_int(std::string_view text) {
  text = trim(text);
  int base = 10;
  if (starts_with(text, "0x") || starts_with(text, "0X")) {
    text.remove_prefix(2);
    base = 16;
  }
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

int parse_index(std::string_view text) {
  const auto value = parse_int(text);
  return value && *value >= 0 && *value <= 1'000'000 ? static_cast<int>(*value) : kNone;
}

std::optional<double> parse_number(std::string_view text) {
  text = trim(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() ||
      !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::string canonical_bus_id(std::string_view text) {
  text = trim(text);
  // domain:bus:device.function, the domain optional
  const bool has_domain = std::count(text.begin(), text.end(), ':') == 2;
  std::optional<unsigned> domain = 0;
  if (has_domain) {
    domain = take_hex(text, 8);
    if (!domain || !take(text, ':')) return {};
  }
  const auto bus = take_hex(text, 2);
  if (!bus || !take(text, ':')) return {};
  const auto device = take_hex(text, 2);
  if (!device || !take(text, '.')) return {};
  const auto function = take_hex(text, 1);
  if (!function || !text.empty()) return {};
  char id[32];
  std::snprintf(id, sizeof id, "%04x:%02x:%02x.%x", *domain, *bus, *device, *function);
  return id;
}

bool is_invented_bus_id(std::string_view bus_id) {
  // A real domain may be large (5 digits where a volume manager adds its own), but bus ff of domain
  // ffff is nobody's.
  const std::size_t colon = bus_id.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view domain = bus_id.substr(0, colon);
  return domain.find_first_not_of('f') == std::string_view::npos && domain.size() >= 4 &&
         starts_with(bus_id.substr(colon + 1), "ff:");
}

LaneSpeed parse_lane_speed(std::string_view text) {
  const std::vector<std::string_view> words = split_words(text);
  if (words.empty()) return {};
  // "16GT/s" without a blank, too
  const std::size_t unit_at = std::min(words[0].find_first_not_of("0123456789."), words[0].size());
  const auto value = parse_number(words[0].substr(0, unit_at));
  if (!value || *value <= 0) return {};
  if (is_pci_speed(*value)) {
    const std::string_view unit = unit_at < words[0].size() ? words[0].substr(unit_at)
                                  : words.size() > 1        ? words[1]
                                                            : std::string_view("GT/s");
    return {*value, !starts_with(unit, "GT")};
  }
  if (is_pci_speed(*value / 1000)) {
    const bool said = words.size() > 1 && starts_with(words[1], "MT");
    return {*value / 1000, !said};
  }
  return {};
}

PortSpeed parse_port_speed(double value_mbit_s) {
  static constexpr std::array kGbitRates = {25.0, 40.0, 50.0, 56.0, 200.0, 400.0, 800.0, 1600.0};
  constexpr double kMostMbitS = 4e6;
  if (!(value_mbit_s > 0)) return {};
  if (std::find(kGbitRates.begin(), kGbitRates.end(), value_mbit_s) != kGbitRates.end()) {
    return {value_mbit_s, true};  // no port of so many Mbit/s was ever built
  }
  if (value_mbit_s <= kMostMbitS) return {value_mbit_s / 1e3, false};
  for (double unit : {1e3, 1e6}) {  // kbit/s, bit/s
    const double mbit_s = value_mbit_s / unit;
    if (mbit_s >= 1e3 && mbit_s <= kMostMbitS) return {mbit_s / 1e3, true};
  }
  return {};
}

bool is_virtual_interface(std::string_view name) {
  static constexpr std::array<std::string_view, 24> kPrefixes = {
      "docker",  "br-",   "veth",  "virbr",  "vnet",   "tun",    "tap", "cni",
      "flannel", "cali",  "vxlan", "dummy",  "ifb",    "wg",     "lxc", "lxd",
      "kube",    "weave", "ovs",   "podman", "cilium", "geneve", "gre", "sit"};
  if (name == "lo" || name == "br0") return true;
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return starts_with(name, prefix); });
}

const char* verb(std::size_t count, const char* one, const char* many) {
  return count == 1 ? one : many;
}

std::string join_names(const Graph& graph, const std::vector<NodeId>& nodes) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (i == kMost && nodes.size() > kMost + 1) {
      return text + " and " + std::to_string(nodes.size() - kMost) + " more";
    }
    if (i > 0) text += i + 1 == nodes.size() ? " and " : ", ";
    text += graph.at(nodes[i]).name;
  }
  return text;
}

std::string format_gb_s(double gb_s) {
  char text[32];
  if (gb_s >= 99.95)
    std::snprintf(text, sizeof text, "%.0f", gb_s);
  else
    std::snprintf(text, sizeof text, "%.3g", gb_s);
  return text;
}

}  // namespace treering::topo
