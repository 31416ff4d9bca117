// Reading sysfs and procfs below a root directory. Nothing here fails: what is not there is empty.
#pragma once

#include <string>
#include <vector>

namespace treering::topo {

class Sysfs {
 public:
  explicit Sysfs(std::string root);

  // The first line of a file, without its end; empty if there is none. At most 64 KiB of it.
  std::string line(const std::string& path) const;
  std::string text(const std::string& path) const;
  std::vector<std::string> list(const std::string& directory) const;  // names, sorted
  // Where a path leads through symbolic links, below the root; empty if it leads nowhere.
  std::string resolve(const std::string& path) const;

 private:
  std::string root_;  // with a slash at its end
};

}  // namespace treering::topo
