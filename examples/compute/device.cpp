#include "compute/device.hpp"

#include <algorithm>
#include <cstring>

#include "treering/treering.h"

#include "compute/cuda.hpp"

namespace compute {
namespace {

class HostDevice final : public Device {
 public:
  bool is_host() const override { return true; }
  std::string name() const override { return "host"; }

  tr::Result<void*> allocate(std::size_t bytes) override {
    void* memory = nullptr;
    if (const auto code = tr_mem_alloc(&memory, std::max<std::size_t>(bytes, 1))) {
      return tr::Error::last(code);
    }
    return memory;
  }
  void release(void* memory) override { (void)tr_mem_free(memory); }
  tr::Status upload(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }
  tr::Status download(void* to, const void* from, std::size_t bytes) override {
    return upload(to, from, bytes);
  }
  void clear(void* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }
  tr::Status synchronize() override { return {}; }

  void* side_stream() const override { return nullptr; }
  void fork() override {}
};

}  // namespace

tr::Result<std::unique_ptr<Device>> make_device(std::string_view name, int local_rank) {
  if (name == "host") return std::unique_ptr<Device>(std::make_unique<HostDevice>());
  if (name == "cuda") return make_cuda_device(local_rank);
  return tr::Error{TR_INVALID_ARGUMENT, "no device '" + std::string(name) + "': host, cuda"};
}

}  // namespace compute
