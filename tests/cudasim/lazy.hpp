// A value that is made at its first use and never destroyed, because threads of the emulator live
// on when main returns. Unlike a static variable's, its making is seen by ThreadSanitizer in files
// that are not built for it: call_once is a function that it replaces.
#pragma once

#include <mutex>

namespace cudasim {

template <class T>
class Lazy {
 public:
  using Make = T* (*)();
  explicit constexpr Lazy(Make make = [] { return new T; }) : make_(make) {}

  T& get() {
    std::call_once(once_, [this] { value_ = make_(); });
    return *value_;
  }

 private:
  Make make_;
  std::once_flag once_;
  T* value_ = nullptr;
};

}  // namespace cudasim
