// Lesson 2: the collectives, with numbers small enough to check in the head.
//
// Rank r starts with [0, 1, 2, 3] + r. Over 4 ranks:
//   rank 0: 0 1 2 3
//   rank 1: 1 2 3 4      all_reduce(sum) -> 6 10 14 18 on every rank
//   rank 2: 2 3 4 5      reduce_scatter  -> 6 on rank 0, 10 on rank 1, 14 on rank 2, 18 on rank 3
//   rank 3: 3 4 5 6      all_gather of those -> 6 10 14 18 again: all_reduce = reduce_scatter +
//   all_gather
// With another number of ranks n the vector has n elements, and the sums are n i + n (n-1) / 2.
//
//   treering run -n 4 -- 02_collectives [--device cuda]
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "treering/treering.hpp"

#include "device.hpp"
#include "must.hpp"

using example::check;
using example::copy_of;
using example::host;
using example::must;
using Vector = std::vector<float>;    // in the host's memory
using Array = example::Array<float>;  // where the collectives work: there, or on a GPU

// Rank 0 prints what each rank holds, in the order of the ranks. Each process printing for itself
// would mix the lines.
void show(tr::Communicator& comm, example::Device& device, const char* title, const Array& mine) {
  const auto gathered =
      example::make_array<float>(device, comm.rank() == 0 ? mine.size() * comm.size() : 0);
  must(comm.gather(mine, gathered, 0));
  if (comm.rank() != 0) return;
  const Vector all = host(gathered);
  std::printf("%s\n", title);
  for (int q = 0; q < comm.size(); ++q) {
    std::printf("  rank %d:", q);
    for (const float x : std::span(all).subspan(q * mine.size(), mine.size())) {
      std::printf(" %g", x);
    }
    std::printf("\n");
  }
}

int main(int argc, char** argv) {
  const auto device = example::chosen_device(argc, argv);
  tr::Communicator comm = must(tr::Communicator::from_env());
  const int rank = comm.rank(), n = comm.size(), last = n - 1;

  const auto array = [&](std::size_t count) { return example::make_array<float>(*device, count); };
  const auto show_all = [&](const char* title, const Array& mine) {
    show(comm, *device, title, mine);
  };

  Vector start(n), sums(n);
  std::iota(start.begin(), start.end(), static_cast<float>(rank));
  for (int i = 0; i < n; ++i) sums[i] = static_cast<float>(n * i + n * (n - 1) / 2);
  const Array mine = copy_of(start, *device);
  show_all("start", mine);

  // Everyone's vectors added up, the result on everyone.
  const Array reduced = array(n);
  must(comm.all_reduce(mine, reduced, tr::kSum));
  show_all("all_reduce: the sum, everywhere", reduced);
  check(host(reduced) == sums, "all_reduce adds up");

  // The same sum, on one rank only.
  const Array at_root = array(rank == last ? n : 0);
  must(comm.reduce(mine, at_root, tr::kSum, last));
  check(rank != last || host(at_root) == sums, "reduce gives the last rank the sum");

  // The same sum, cut into n parts: rank r gets part r.
  const Array part = array(1);
  must(comm.reduce_scatter(mine, part, tr::kSum));
  show_all("reduce_scatter: part r of the sum, on rank r", part);
  check(host(part)[0] == sums[rank], "reduce_scatter gives rank r part r");

  // Everyone's parts, one after another: the second half of an all_reduce.
  const Array gathered = array(n);
  must(comm.all_gather(part, gathered));
  show_all("all_gather of these: the whole sum again", gathered);
  check(host(gathered) == host(reduced), "reduce_scatter + all_gather = all_reduce");

  // One rank's vector to everyone.
  const Array copy = copy_of(start, *device);
  must(comm.broadcast(copy, last));
  show_all("broadcast: the last rank's vector, everywhere", copy);
  for (int i = 0; i < n; ++i) {
    check(host(copy)[i] == static_cast<float>(last + i), "broadcast copies");
  }

  // One rank's vector, part r to rank r; and back.
  must(comm.scatter(reduced, part, 0));
  check(host(part)[0] == sums[rank], "scatter hands out the parts");
  const Array collected = array(rank == 0 ? n : 0);
  must(comm.gather(part, collected, 0));
  show_all("scatter: part r of rank 0's vector, on rank r", part);
  check(rank != 0 || host(collected) == sums, "gather undoes scatter");

  // Part q goes to rank q: the matrix "rank x element" is transposed. Row r is 10 r + [0, 1, 2, 3].
  Vector row(n);
  std::iota(row.begin(), row.end(), static_cast<float>(10 * rank));
  const Array copied_row = copy_of(row, *device), column = array(n);
  must(comm.all_to_all(copied_row, column));
  show_all("all_to_all of 10 r + [0 1 2 3]: row r becomes column r", column);
  for (int q = 0; q < n; ++q) {
    check(host(column)[q] == static_cast<float>(10 * q + rank), "transposed");
  }

  must(comm.barrier());
  if (rank == 0) std::printf("all as expected\n");
  must(comm.destroy());
}
