// A directory in memory for what launchers and peers leave lying about when they are hurried. It
// goes with the run, however the run ends.
#pragma once

#include <string>
#include <sys/types.h>

#include "perf/failure.hpp"
#include "perf/wire.hpp"

namespace treering::perf {

// Only this user can enter it. It lies in /dev/shm or else $TMPDIR or /tmp.
//
// A keeper, a process in a session of its own, makes the directory and removes it with all files in
// it as soon as nobody holds hold() open: the driver, and every process that inherited it from the
// driver. So kill -9 of the driver leaves nothing either, and a worker that is still ending has the
// directory until then.
class PrivateDir {
 public:
  Failure create();
  void remove();  // now, by the driver itself
  ~PrivateDir() { remove(); }
  PrivateDir() = default;
  PrivateDir(const PrivateDir&) = delete;
  PrivateDir& operator=(const PrivateDir&) = delete;

  const std::string& path() const { return path_; }  // empty: not created
  int hold() const { return hold_.fd(); }            // closed by exec unless told otherwise
  pid_t keeper() const { return keeper_; }

 private:
  std::string path_;
  Fd hold_;
  pid_t keeper_ = 0;
};

}  // namespace treering::perf
