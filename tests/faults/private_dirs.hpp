// /tmp and /dev/shm of this process's own for a while, so that what is left there is its own, too.
#pragma once

#include <filesystem>
#include <sched.h>
#include <set>
#include <string>
#include <sys/mount.h>

namespace treering::test {

class PrivateDirs {
 public:
  // Needs root. The process stays in a mount namespace of its own.
  PrivateDirs() {
    static const bool own_namespace =
        ::unshare(CLONE_NEWNS) == 0 &&
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    are_private_ = own_namespace && ::mount("none", kDirs[0], "tmpfs", 0, nullptr) == 0;
    are_private_ = are_private_ && ::mount("none", kDirs[1], "tmpfs", 0, "size=1m") == 0;
  }
  // A test runner's report may lie below /tmp.
  ~PrivateDirs() {
    for (const char* dir : kDirs) {
      if (are_private_) ::umount2(dir, MNT_DETACH);
    }
  }
  PrivateDirs(const PrivateDirs&) = delete;
  PrivateDirs& operator=(const PrivateDirs&) = delete;

  bool are_private() const { return are_private_; }
  std::set<std::string> left_behind() const {
    std::set<std::string> names;
    for (const char* dir : kDirs) {
      for (const auto& e : std::filesystem::directory_iterator(dir))
        names.insert(e.path().string());
    }
    return names;
  }

 private:
  static constexpr const char* kDirs[] = {"/tmp", "/dev/shm"};
  bool are_private_ = false;
};

}  // namespace treering::test
