// Connections do not go along into forked children: a child that held one open would hide its
// parent's end from the peers.
#pragma once

#include <vector>

namespace treering::tcp {

// As long as this lives, a child that is forked gets other, empty descriptors (/dev/null) in the
// place of these: their numbers stay taken, so whatever closes them there does no harm. Any thread.
class ForkGuard {
 public:
  explicit ForkGuard(std::vector<int> descriptors);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  std::vector<int> descriptors_;
};

}  // namespace treering::tcp
