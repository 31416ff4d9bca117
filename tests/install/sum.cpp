// Out of the tree, C++20: two ranks add up their rank numbers through the installed library.
#include <cstdio>
#include <treering/treering.hpp>
#include <vector>

int main() {
  auto comm = tr::Communicator::from_env();
  if (!comm) {
    std::fprintf(stderr, "%s\n", comm.error().message.c_str());
    return 1;
  }
  const int rank = comm.value().rank(), size = comm.value().size();
  std::vector<int> values = {rank, rank + 1, rank + 2};
  if (auto done = comm.value().all_reduce(values, tr::kSum); !done) {
    std::fprintf(stderr, "%s\n", done.error().message.c_str());
    return 1;
  }
  std::printf("C++ rank %d of %d: %d %d %d\n", rank, size, values[0], values[1], values[2]);
  return 0;
}
