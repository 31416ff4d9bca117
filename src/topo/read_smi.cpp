// The output of nvidia-smi topo -m: a matrix of path classes, with CPU and NUMA affinity. It names
// no switches; those that the classes imply are made up in smi_tree.cpp.
#include <algorithm>
#include <map>

#include "topo/bandwidth.hpp"
#include "topo/check.hpp"
#include "topo/read.hpp"
#include "topo/smi.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

constexpr std::size_t kMaxDevices = 256;

// Terminal escapes: nvidia-smi underlines its header.
std::string without_escapes(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      out += text[i];
      continue;
    }
    while (i + 1 < text.size() &&
           std::string_view("[;0123456789").find(text[i + 1]) != std::string_view::npos) {
      ++i;
    }
    ++i;  // the letter
  }
  return out;
}

std::optional<SmiCell> parse_cell(std::string_view word) {
  if (word == "X") return SmiCell{PathClass::kSelf, 0};
  if (word == "PIX") return SmiCell{PathClass::kPix, 0};
  if (word == "PXB") return SmiCell{PathClass::kPxb, 0};
  if (word == "PHB") return SmiCell{PathClass::kPhb, 0};
  if (word == "NODE") return SmiCell{PathClass::kNode, 0};
  if (word == "SYS" || word == "SOC") return SmiCell{PathClass::kSys, 0};
  if (starts_with(word, "NV")) {
    const auto links = parse_int(word.substr(2));
    if (links && *links > 0 && *links < 1000) {
      return SmiCell{PathClass::kNvlink, static_cast<int>(*links)};
    }
  }
  return std::nullopt;
}

bool is_gpu_name(std::string_view word) {
  return starts_with(word, "GPU") && parse_index(word.substr(3)) != kNone;
}

class SmiReader {
 public:
  explicit SmiReader(const std::string& name) : name_(name) {}

  Result<SmiMatrix> read(std::string_view text) {
    const std::string plain = without_escapes(text);
    const std::vector<std::string_view> lines = split_lines(plain);
    std::size_t at = 0;
    while (at < lines.size() && !is_header(lines[at])) ++at;
    if (at == lines.size()) {
      return invalid_argument(name_ +
                              " speaks of GPUs, but has no header line of nvidia-smi "
                              "topo -m (GPU0 GPU1 ... CPU Affinity)");
    }
    at = read_header(lines, at);
    if (matrix_.devices.size() > kMaxDevices) {
      return invalid_argument(name_ + " has more than " + std::to_string(kMaxDevices) +
                              " columns; no machine has so many devices");
    }
    const std::size_t n = matrix_.devices.size();
    matrix_.cells.resize(n * n);
    for (; at < lines.size(); ++at) read_line(split_words(lines[at]));
    if (rows_ == 0) {
      return invalid_argument(name_ + " has the header of nvidia-smi topo -m and no row below it");
    }
    report_missing();
    return std::move(matrix_);
  }

 private:
  static bool is_header(std::string_view line) {
    const auto words = split_words(line);
    if (words.empty() || !is_gpu_name(words[0])) return false;
    return words.size() == 1 || !parse_cell(words[1]);
  }

  // Device names up to "CPU Affinity"; pasted text may wrap them onto several lines.
  std::size_t read_header(const std::vector<std::string_view>& lines, std::size_t at) {
    bool affinity = false;
    for (; at < lines.size(); ++at) {
      const auto words = split_words(lines[at]);
      if (words.empty()) continue;
      if (words.size() > 1 && parse_cell(words[1]) && !affinity_word(words[0])) break;  // a row
      for (std::string_view word : words) {
        affinity = affinity || word == "CPU";
        if (word == "NUMA") has_numa_ = true;
        if (!affinity) matrix_.devices.push_back(make_device(word));
      }
    }
    return at;
  }

  static bool affinity_word(std::string_view word) {
    return word == "CPU" || word == "NUMA" || word == "Affinity" || word == "GPU" || word == "ID";
  }

  static SmiDevice make_device(std::string_view word) {
    SmiDevice device;
    device.label = std::string(word);
    device.name = device.label;
    device.is_gpu = is_gpu_name(word);
    const std::size_t digits = word.find_last_not_of("0123456789") + 1;
    device.number = parse_index(word.substr(digits));
    return device;
  }

  std::size_t index_of(std::string_view label) const {
    for (std::size_t i = 0; i < matrix_.devices.size(); ++i) {
      if (matrix_.devices[i].label == label) return i;
    }
    return matrix_.devices.size();
  }

  void read_line(const std::vector<std::string_view>& words) {
    if (words.empty()) return;
    const std::size_t n = matrix_.devices.size();
    const std::size_t row = index_of(words[0]);
    if (row < n && words.size() > 1 && parse_cell(words[1])) {
      row_ = row;
      filled_ = 0;
      ++rows_;
      seen_[row] = true;
      return take_cells(words, 1);
    }
    // "NIC0: mlx5_0" of the legend
    std::string_view label = words[0];
    if (label.back() == ':') {
      label.remove_suffix(1);
      const std::size_t device = index_of(label);
      if (device < n && words.size() == 2) matrix_.devices[device].name = std::string(words[1]);
      row_ = n;
      return;
    }
    // The rest of a row that was wrapped.
    if (row_ < n && filled_ < n && parse_cell(words[0])) return take_cells(words, 0);
    const bool affinity = words[0] == "N/A" || CpuSet::from_list(words[0]).has_value();
    if (row_ < n && filled_ == n && affinity && !affinity_.count(row_)) {
      return take_affinity(words, 0);
    }
    row_ = n;
  }

  void take_cells(const std::vector<std::string_view>& words, std::size_t at) {
    const std::size_t n = matrix_.devices.size();
    for (; at < words.size() && filled_ < n; ++at, ++filled_) {
      const auto cell = parse_cell(words[at]);
      if (cell)
        matrix_.at(row_, filled_) = *cell;
      else
        ++unknown_[std::string(words[at].substr(0, 20))];
    }
    short_rows_[row_] = filled_ < n;
    if (filled_ == n && at < words.size()) take_affinity(words, at);
  }

  void take_affinity(const std::vector<std::string_view>& words, std::size_t at) {
    SmiDevice& device = matrix_.devices[row_];
    affinity_[row_] = true;
    if (const auto cpus = CpuSet::from_list(words[at]))
      device.cpus = *cpus;
    else if (words[at] != "N/A")
      ++unknown_[std::string(words[at].substr(0, 20))];
    if (!has_numa_ || at + 1 >= words.size()) return;
    device.numa_text = std::string(words[at + 1]);
  }

  void report_missing() {
    const std::size_t n = matrix_.devices.size();
    std::string missing;
    for (std::size_t i = 0; i < n; ++i) {
      if (seen_.count(i) && !short_rows_[i]) continue;
      missing += (missing.empty() ? "" : ", ") + matrix_.devices[i].label;
    }
    if (!missing.empty()) {
      matrix_.findings.push_back(
          {FindingKind::kTruncated,
           "rows of " + missing + " are missing or short (" + std::to_string(rows_) + " rows for " +
               std::to_string(n) + " columns); filled in from the other rows where they say it"});
    }
    for (const auto& [word, times] : unknown_) {
      matrix_.findings.push_back(
          {FindingKind::kUnknownPart, "'" + word +
                                          "' is no path class or "
                                          "affinity that is known here; left "
                                          "out (" +
                                          std::to_string(times) + " times)"});
    }
    matrix_.has_numa = has_numa_;
  }

  std::string name_;
  SmiMatrix matrix_;
  bool has_numa_ = false;
  std::size_t row_ = ~std::size_t{0};  // of the last line; none: a number that is no row
  std::size_t filled_ = 0;
  int rows_ = 0;
  std::map<std::size_t, bool> seen_, short_rows_, affinity_;
  std::map<std::string, int> unknown_;
};

}  // namespace

Result<Graph> read_smi_matrix(std::string_view text, const std::string& name) {
  TR_ASSIGN_OR_RETURN(SmiMatrix matrix, SmiReader(name).read(text));
  Graph graph = graph_of_matrix(std::move(matrix));
  graph.name = name;
  finish(graph);
  return graph;
}

}  // namespace treering::topo
