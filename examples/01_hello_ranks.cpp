// Lesson 1: ranks.
//
// The same program runs several times at once. Each copy is a rank: it learns from its launcher who
// it is (rank) and how many there are (size), and meets the others in a communicator. From then on
// every collective call is made by all of them.
//
//   treering run -n 4 -- 01_hello_ranks
//   01_hello_ranks                         (alone: rank 0 of 1)
#include <array>
#include <cstdint>
#include <cstdio>
#include <unistd.h>
#include <vector>

#include "treering/treering.hpp"

#include "must.hpp"

using example::check;
using example::must;

int main() {
  tr::Communicator comm = must(tr::Communicator::from_env());
  const int rank = comm.rank(), size = comm.size();

  // Every rank contributes its process id; everyone gets all of them, in the order of the ranks.
  const std::array mine{static_cast<std::int64_t>(getpid())};
  std::vector<std::int64_t> pids(size);
  must(comm.all_gather(mine, pids));
  check(pids[rank] == mine[0], "my own part is where my rank says");

  std::printf("hello from rank %d of %d: I am process %d\n", rank, size, static_cast<int>(mine[0]));

  // A ring: say something to the right neighbour, hear from the left one. Both at once, so they are
  // grouped: one after the other, everyone could wait in send for a receiver that waits in send
  // too.
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  std::array<std::int64_t, 1> heard{-1};
  tr::GroupGuard group;
  must(comm.send(mine, right));
  must(comm.recv(heard, left));
  must(group.end());
  check(heard[0] == pids[left], "the left neighbour sent its process id");

  // Output of different processes mixes as it likes. What must come last needs a barrier, and one
  // voice.
  std::fflush(stdout);
  must(comm.barrier());
  if (rank == 0) {
    std::printf("all %d of us are here, and everyone heard from the left neighbour\n", size);
  }
  must(comm.destroy());
}
