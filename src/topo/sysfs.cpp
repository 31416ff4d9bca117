#include "topo/sysfs.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "topo/text.hpp"

namespace treering::topo {
namespace {

namespace fs = std::filesystem;

}  // namespace

Sysfs::Sysfs(std::string root) : root_(std::move(root)) {
  // Links are resolved to real paths, so the root has to be one.
  std::error_code error;
  const fs::path real = fs::canonical(root_, error);
  if (!error) root_ = real.string();
  if (root_.empty() || root_.back() != '/') root_ += '/';
}

std::string Sysfs::text(const std::string& path) const {
  std::error_code error;
  if (!fs::is_regular_file(root_ + path, error)) return "";
  std::ifstream file(root_ + path);
  std::string content(1 << 16, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return content;
}

std::string Sysfs::line(const std::string& path) const {
  const std::string content = text(path);
  return std::string(trim(content.substr(0, content.find('\n'))));
}

std::vector<std::string> Sysfs::list(const std::string& directory) const {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(root_ + directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Sysfs::resolve(const std::string& path) const {
  std::error_code error;
  const std::string real = fs::canonical(root_ + path, error).string();
  if (error || !starts_with(real, root_)) return "";
  return real.substr(root_.size());
}

}  // namespace treering::topo
