// The examples' choice of memory: "--device host" (the default) or "--device cuda" among the
// arguments. compute/device.hpp has what a device can do.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "compute/device.hpp"
#include "must.hpp"

namespace example {

template <class T>
using Array = compute::Array<T>;

// This process's number on its host, as its launcher says; 0: it was started alone.
inline int local_rank() {
  for (const char* name :
       {"TR_LOCAL_RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "TR_RANK"}) {
    if (const char* number = std::getenv(name)) return std::max(std::atoi(number), 0);
  }
  return 0;
}

// Takes "--device X" out of the arguments. Before the communicator: it takes the GPU that is
// current when it forms.
inline std::unique_ptr<compute::Device> chosen_device(int& argc, char** argv) {
  std::string name = "host";
  char** const end = argv + argc;
  if (char** at = std::find(argv, end, std::string("--device")); at != end) {
    check(at + 1 != end, "--device has a value: host or cuda");
    name = at[1];
    std::copy(at + 2, end, at);
    argc -= 2;
  }
  return must(compute::make_device(name, local_rank()));
}

// `count` elements of its memory, undefined; or those of a vector.
template <class T>
Array<T> make_array(compute::Device& device, std::size_t count) {
  return must(Array<T>::make(device, count));
}
template <class T>
Array<T> copy_of(const std::vector<T>& values, compute::Device& device) {
  return must(Array<T>::copy_of(device, values));
}
// Back to the host.
template <class T>
std::vector<T> host(const Array<T>& array) {
  return must(array.download());
}

}  // namespace example
