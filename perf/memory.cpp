#include "perf/memory.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace treering::perf {
namespace {

constexpr std::size_t kPageBytes = 4096;

class HostMemory final : public Memory {
 public:
  Failure allocate(std::size_t bytes, void** a, void** b) override {
    for (void** buffer : {a, b}) {
      if (posix_memalign(buffer, kPageBytes, bytes) != 0) {
        return "cannot allocate " + std::to_string(bytes) + " bytes";
      }
      std::memset(*buffer, 0, bytes);
    }
    return std::nullopt;
  }
  Failure set(void* at, unsigned char value, std::size_t bytes) override {
    std::memset(at, value, bytes);
    return std::nullopt;
  }
  Failure write(void* at, std::size_t, const std::function<void(void*)>& fill) override {
    fill(at);
    return std::nullopt;
  }
  Failure read(const void* at, std::size_t, const std::function<void(const void*)>& look) override {
    look(at);
    return std::nullopt;
  }
  Failure begin() override {
    begin_ = std::chrono::steady_clock::now();
    return std::nullopt;
  }
  Failure end() override {
    end_ = std::chrono::steady_clock::now();
    return std::nullopt;
  }
  Failure elapsed(std::uint64_t* ns) override {
    *ns = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(end_ - begin_).count());
    return std::nullopt;
  }

 private:
  std::chrono::steady_clock::time_point begin_, end_;
};

}  // namespace

Failure Memory::measure_copy(double* gb_s) {
  *gb_s = 0;
  return std::nullopt;
}

// One a thread: it keeps the times of the thread's batch.
Memory& host_memory() {
  thread_local HostMemory memory;
  return memory;
}

}  // namespace treering::perf
