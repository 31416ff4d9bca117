// Where numbers lie, and in which order work on them is done: the host's memory, or a GPU's.
//
// A device has one stream. Whatever is asked of the device, and of the Operations and the Gemm that
// belong to it, is done in the order in which it was asked. The host does it at once; a GPU does it
// later. So what goes wrong is told where somebody waits: by synchronize(), upload() and
// download(), which answer with the first error of anything before them.
//
// A device serves one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "treering/result.hpp"

namespace compute {

class Device {
 public:
  virtual ~Device() = default;
  virtual bool is_host() const = 0;
  virtual std::string name() const = 0;  // "host", "NVIDIA H200"

  // Contents start undefined; aligned for every type. A rank's peers can reach it.
  virtual tr::Result<void*> allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  // From and to the host's memory. Done when they return.
  virtual tr::Status upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual tr::Status download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void clear(void* memory, std::size_t bytes) = 0;
  // Waits for everything on the stream.
  virtual tr::Status synchronize() = 0;

  // A second stream, for communication beside the computation: a cudaStream_t, or nullptr on the
  // host. After fork(), what is put there starts after all that is on the device's stream now.
  virtual void* side_stream() const = 0;
  virtual void fork() = 0;
};

// "host", or "cuda": GPU number local_rank, modulo their number, which becomes the thread's current
// one. So make it before the communicator, which takes that one. TR_UNSUPPORTED in a build without
// CUDA.
tr::Result<std::unique_ptr<Device>> make_device(std::string_view name, int local_rank);

// `size()` elements of a device's memory; owns them. A Buffer of the collectives (begin() and end()
// are the device's addresses). The device outlives it.
template <class T>
class Array {
 public:
  static tr::Result<Array> make(Device& device, std::size_t size) {
    auto memory = device.allocate(size * sizeof(T));
    if (!memory) return memory.error();
    return Array(device, static_cast<T*>(memory.value()), size);
  }
  static tr::Result<Array> copy_of(Device& device, std::span<const T> values) {
    auto array = make(device, values.size());
    if (!array) return array.error();
    if (auto s = array.value().upload(values); !s) return s.error();
    return array;
  }
  Array() = default;
  Array(Array&& other) noexcept { swap(other); }
  Array& operator=(Array&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Array() {
    if (device_ != nullptr) device_->release(data_);
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  std::span<T> span() const { return {data_, size_}; }

  // The first values.size() elements.
  tr::Status upload(std::span<const T> values) {
    return device_->upload(data_, values.data(), values.size_bytes());
  }
  tr::Result<std::vector<T>> download() const {
    std::vector<T> values(size_);
    if (auto s = device_->download(values.data(), data_, size_ * sizeof(T)); !s) return s.error();
    return values;
  }
  void clear() { device_->clear(data_, size_ * sizeof(T)); }

 private:
  Array(Device& device, T* data, std::size_t size) : device_(&device), data_(data), size_(size) {}
  void swap(Array& other) {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  Device* device_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace compute
