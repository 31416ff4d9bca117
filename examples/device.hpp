// The examples' choice of memory: "--device host" (the default) or "--device cuda" among the
// arguments.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "treering/parallel/compute.hpp"

#include "must.hpp"

namespace example {

// What has the memory, and could compute in it.
using Device = tr::par::Compute;

// This process's number on its host, as its launcher says; 0: it was started alone.
inline int local_rank() {
  for (const char* name :
       {"TR_LOCAL_RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "TR_RANK"}) {
    if (const char* number = std::getenv(name)) return std::max(std::atoi(number), 0);
  }
  return 0;
}

inline tr::Result<std::unique_ptr<Device>> make_device(const std::string& name,
                                                       const std::string& gemm, int number) {
  if (name == "host") return tr::par::make_host_compute(gemm);
  if (name == "cuda") return tr::par::make_cuda_compute(gemm, number);
  return tr::Error{TR_INVALID_ARGUMENT, "no device '" + name + "': host, cuda"};
}

// Takes "--device X" out of the arguments. Before the communicator: it takes the GPU that is
// current when it forms.
inline std::unique_ptr<Device> chosen_device(int& argc, char** argv) {
  std::string name = "host";
  char** const end = argv + argc;
  if (char** at = std::find(argv, end, std::string("--device")); at != end) {
    check(at + 1 != end, "--device has a value: host or cuda");
    name = at[1];
    std::copy(at + 2, end, at);
    argc -= 2;
  }
  return must(make_device(name, "ref", local_rank()));
}

// Elements of a device's memory: a buffer of the collectives, whose begin() and end() are the
// device's addresses. The host sees them by host() and element().
template <class T>
class Array {
 public:
  // Undefined ones.
  Array(Device& device, std::size_t count)
      : device_(&device),
        size_(count),
        memory_(must(tr::par::Tensor::make(device.memory(), tr::par::Use::kBuffers, 1,
                                           static_cast<std::int64_t>(count), kStored))) {}

  std::size_t size() const { return size_; }
  T* begin() const { return static_cast<T*>(memory_.view().data); }
  T* end() const { return begin() + size_; }
  std::span<T> span() const { return {begin(), size_}; }
  Device& device() const { return *device_; }
  const tr::par::View& view() const { return memory_.view(); }

 private:
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  // Only its size matters.
  static constexpr tr::par::DType kStored =
      sizeof(T) == 8 ? tr::par::DType::kFloat64 : tr::par::DType::kFloat32;

  Device* device_;
  std::size_t size_;
  tr::par::Tensor memory_;
};

template <class T>
Array<T> make_array(Device& device, std::size_t count) {
  return Array<T>(device, count);
}
template <class T>
Array<T> copy_of(const std::vector<T>& values, Device& device) {
  Array<T> array(device, values.size());
  must(device.upload(values.data(), array.view()));
  return array;
}
// Back to the host.
template <class T>
std::vector<T> host(const Array<T>& array) {
  std::vector<T> values(array.size());
  must(array.device().download(array.view(), values.data()));
  return values;
}
template <class T>
T element(const Array<T>& array, std::size_t i) {
  T value;
  must(array.device().download(array.view().columns(static_cast<std::int64_t>(i), 1), &value));
  return value;
}

}  // namespace example
