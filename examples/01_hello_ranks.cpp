// Lesson 1: ranks.
//
// The same program runs several times at once. Each copy is a rank: it learns from its launcher who
// it is (rank) and how many there are (size), and meets the others in a communicator. From then on
// every collective call is made by all of them.
//
//   treering run -n 4 -- 01_hello_ranks
//   treering run -n 4 -- 01_hello_ranks --device cuda
//   01_hello_ranks                         (alone: rank 0 of 1)
#include <cstdint>
#include <cstdio>
#include <unistd.h>
#include <vector>

#include "treering/treering.hpp"

#include "device.hpp"
#include "must.hpp"

using example::check;
using example::copy_of;
using example::host;
using example::make_array;
using example::must;
using Numbers = std::vector<std::int64_t>;

int main(int argc, char** argv) {
  // Where the numbers lie that travel: in the host's memory, or in a GPU's.
  const auto device = example::chosen_device(argc, argv);
  tr::Communicator comm = must(tr::Communicator::from_env());
  const int rank = comm.rank(), size = comm.size();

  // Every rank contributes its process id; everyone gets all of them, in the order of the ranks.
  const auto mine = copy_of(Numbers{getpid()}, *device);
  const auto everyones = make_array<std::int64_t>(*device, size);
  must(comm.all_gather(mine, everyones));
  const Numbers pids = host(everyones);
  check(pids[rank] == getpid(), "my own part is where my rank says");

  std::printf("hello from rank %d of %d: I am process %d\n", rank, size, getpid());

  // A ring: say something to the right neighbour, hear from the left one. Both at once, so they are
  // grouped: one after the other, everyone could wait in send for a receiver that waits in send
  // too.
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  const auto heard = copy_of(Numbers{-1}, *device);
  tr::GroupGuard group;
  must(comm.send(mine, right));
  must(comm.recv(heard, left));
  must(group.end());
  check(host(heard)[0] == pids[left], "the left neighbour sent its process id");

  // Output of different processes mixes as it likes. What must come last needs a barrier, and one
  // voice.
  std::fflush(stdout);
  must(comm.barrier());
  if (rank == 0) {
    std::printf("all %d of us are here, and everyone heard from the left neighbour\n", size);
  }
  must(comm.destroy());
}
