// Telling formats apart by their content.
#include "topo/read.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/unique_fd.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The name of an XML document's root element.
std::string_view root_element(std::string_view text) {
  for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at)) {
    if (starts_with(text.substr(at), "<!--")) {
      at = text.find("-->", at);
      if (at == std::string_view::npos) return {};
    } else if (starts_with(text.substr(at), "<?") || starts_with(text.substr(at), "<!")) {
      ++at;
    } else {
      const std::string_view rest = text.substr(at + 1);
      return rest.substr(0, rest.find_first_of(" \t\r\n/>"));
    }
  }
  return {};
}

bool is_number_row(std::string_view line) {
  std::string words(line);
  std::replace(words.begin(), words.end(), ',', ' ');
  const auto parts = split_words(words);
  return !parts.empty() && std::all_of(parts.begin(), parts.end(), [](std::string_view word) {
    return parse_number(word).has_value();
  });
}

// The first line that says something: not blank, not a comment.
std::string_view first_line(std::string_view text) {
  for (std::string_view line : split_lines(text)) {
    if (!trim(line).empty() && trim(line)[0] != '#') return line;
  }
  return {};
}

std::string unknown_kind(std::string_view text, const std::string& name) {
  std::string what = "is in no format that is known here";
  if (contains(text, "npus_count")) {
    what = "describes a network for ASTRA-sim, by its dimensions; it names no machine";
  }
  return name + " " + what +
         ". Known are topology files of NCCL and hwloc, the output of nvidia-smi topo -m, "
         "topograph's clusters (YAML), measured matrices and the JSON of treering topo --json";
}

Result<std::string> load(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return system_error("cannot open " + path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error("cannot read " + path, errno);
  if (S_ISDIR(info.st_mode)) return invalid_argument(path + " is a directory, not a file");
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read " + path, errno);
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > kMaxFileBytes) {
      return invalid_argument(path + " is larger than 64 MiB; no topology is");
    }
  }
}

}  // namespace

Result<Graph> read_text(std::string_view text, const std::string& name) {
  if (starts_with(text, "\xef\xbb\xbf")) text.remove_prefix(3);
  if (trim(text).empty()) return invalid_argument(name + " is empty");
  if (contains(text, std::string_view("\0", 1))) {
    return invalid_argument(name + " is not text: it has bytes that are 0");
  }
  const std::string_view line = first_line(text);
  if (line.empty()) return invalid_argument(unknown_kind(text, name));
  const char first = trim(line)[0];
  if (first == '<') {
    return root_element(text) == "topology" ? read_hwloc_xml(text, name)
                                            : read_nccl_xml(text, name);
  }
  if (first == '{' || first == '[') return read_json(text, name);
  if (contains(text, "GPU0") || contains(text, "CPU Affinity")) return read_smi_matrix(text, name);
  if (is_number_row(line)) return read_measured(text, name);
  if (contains(text, "switches:") || contains(text, "blocks:") || contains(text, "nodes:")) {
    return read_cluster_yaml(text, name);
  }
  return invalid_argument(unknown_kind(text, name));
}

Result<Graph> read_file(const std::string& path) {
  TR_ASSIGN_OR_RETURN(const std::string text, load(path));
  return read_text(text, path.substr(path.rfind('/') + 1));
}

}  // namespace treering::topo
