#include "topo/cpu_set.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "topo/text.hpp"

namespace treering::topo {
namespace {

constexpr int kBits = 32;

std::optional<std::uint32_t> hex_word(std::string_view text) {
  if (starts_with(text, "0x")) text.remove_prefix(2);
  if (text.size() > 8) return std::nullopt;
  std::uint32_t value = 0;
  for (char c : text) {
    int digit = 0;
    if (c >= '0' && c <= '9')
      digit = c - '0';
    else if (c >= 'a' && c <= 'f')
      digit = c - 'a' + 10;
    else if (c >= 'A' && c <= 'F')
      digit = c - 'A' + 10;
    else
      return std::nullopt;
    value = value << 4 | static_cast<std::uint32_t>(digit);
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(trim(text.substr(at, end - at)));
    at = end + 1;
  }
  return parts;
}

}  // namespace

std::optional<CpuSet> CpuSet::from_mask(std::string_view text) {
  CpuSet set;
  if (trim(text).empty()) return set;
  const std::vector<std::string_view> words = split(text, ',');
  if (words.size() > kMaxCpus / kBits) return std::nullopt;
  set.words_.resize(words.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::optional<std::uint32_t> word = hex_word(words[i]);  // empty: 0, as hwloc writes it
    if (!word) return std::nullopt;
    set.words_[words.size() - 1 - i] = *word;
  }
  while (!set.words_.empty() && set.words_.back() == 0) set.words_.pop_back();
  return set;
}

std::optional<CpuSet> CpuSet::from_list(std::string_view text) {
  CpuSet set;
  if (trim(text).empty()) return set;
  for (std::string_view part : split(text, ',')) {
    const std::size_t dash = part.find('-');
    const auto first = parse_int(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_int(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxCpus) return std::nullopt;
    for (long long cpu = *first; cpu <= *last; ++cpu) set.add(static_cast<int>(cpu));
  }
  return set;
}

bool CpuSet::add(int cpu) {
  if (cpu < 0 || cpu >= kMaxCpus) return false;
  const auto word = static_cast<std::size_t>(cpu / kBits);
  if (words_.size() <= word) words_.resize(word + 1);
  words_[word] |= 1u << (cpu % kBits);
  return true;
}

void CpuSet::add(const CpuSet& other) {
  words_.resize(std::max(words_.size(), other.words_.size()));
  for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
}

bool CpuSet::has(int cpu) const {
  const auto word = static_cast<std::size_t>(cpu / kBits);
  return cpu >= 0 && word < words_.size() && (words_[word] >> (cpu % kBits) & 1) != 0;
}

int CpuSet::count() const {
  int sum = 0;
  for (std::uint32_t word : words_) sum += std::popcount(word);
  return sum;
}

bool CpuSet::overlaps(const CpuSet& other) const {
  for (std::size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i) {
    if ((words_[i] & other.words_[i]) != 0) return true;
  }
  return false;
}

bool CpuSet::operator==(const CpuSet& other) const { return words_ == other.words_; }

std::vector<int> CpuSet::cpus() const {
  std::vector<int> out;
  for (int cpu = 0; cpu < static_cast<int>(words_.size()) * kBits; ++cpu) {
    if (has(cpu)) out.push_back(cpu);
  }
  return out;
}

std::string CpuSet::to_list() const {
  std::string text;
  const int end = static_cast<int>(words_.size()) * kBits;
  for (int cpu = 0; cpu < end; ++cpu) {
    if (!has(cpu)) continue;
    const int first = cpu;
    while (has(cpu + 1)) ++cpu;
    if (!text.empty()) text += ",";
    text += std::to_string(first);
    if (cpu > first) text += "-" + std::to_string(cpu);
  }
  return text;
}

std::string CpuSet::to_mask() const {
  std::string text;
  for (std::size_t i = words_.size(); i-- > 0;) {
    char word[16];
    std::snprintf(word, sizeof word, "%08x", words_[i]);
    if (!text.empty()) text += ",";
    text += word;
  }
  return text;
}

}  // namespace treering::topo
