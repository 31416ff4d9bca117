// What cuda_nvtx_recorder.cpp recorded, for tests that run under it.
#pragma once

#include <cstdlib>
#include <dlfcn.h>
#include <string>

namespace treering::test {

// The ranges of this thread since the last call, ended ones, a line each; those inside another are
// indented. If one has no end, that is said instead.
inline std::string ranges_of_this_thread() {
  using Recorded = const char* (*)();
  static const auto recorded = [] {
    const char* path = std::getenv("NVTX_INJECTION64_PATH");
    void* tool = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    return tool == nullptr ? nullptr : reinterpret_cast<Recorded>(::dlsym(tool, "nvtx_recorded"));
  }();
  if (recorded == nullptr) return "the recorder was not loaded";
  std::string text, indent;
  const std::string lines = recorded();
  for (std::size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) {
    if (lines[at] == '<') {
      if (indent.empty()) return "an end without a begin: " + lines;
      indent.resize(indent.size() - 2);
    } else {
      text += indent + lines.substr(at + 2, lines.find('\n', at) - at - 1);
      indent += "  ";
    }
  }
  return indent.empty() ? text : "a range without an end: " + lines;
}

}  // namespace treering::test
