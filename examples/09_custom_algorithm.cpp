// Lesson 9: an algorithm of your own, written once, proven, and run.
//
// A two-way ring all-gather: half of the chunks travel to the right, the other half to the left at
// the same time. It takes about n/2 steps where the plain ring takes n-1. The template below speaks
// in verbs (algos/prims.hpp); what a verb does is up to the Prims it is given:
// - TracePrims records it, and the checker proves the record, for 1 to 17 ranks: every rank ends
//   with the right chunks, no deadlock whatever the timing, no unordered access to a buffer.
// - Live (09_custom_algorithm_live.hpp) carries it out at once, with send and recv of the public
//   API.
//
//   treering run -n 4 -- 09_custom_algorithm
#include <cstdio>
#include <string>
#include <vector>

#include "treering/treering.hpp"

#include "09_custom_algorithm_live.hpp"
#include "algos/checker.hpp"
#include "algos/prims.hpp"
#include "algos/program.hpp"
#include "algos/trace_prims.hpp"
#include "must.hpp"

using example::check;
using example::must;
namespace algos = treering::algos;
using algos::mod;

// ---- The algorithm -----------------------------------------------------------------------------

// The own chunk goes ahead; what comes from behind is kept and handed on, `hops` chunks in all.
template <class P>
void travel(P& p, int direction, int hops) {
  if (hops == 0) return;
  const int n = p.size(), r = p.rank();
  const auto behind = p.from(mod(r - direction, n));
  const auto ahead = p.to(mod(r + direction, n));
  p.send(r, ahead);
  for (int i = 1; i < hops; ++i) p.recv_copy_send(behind, mod(r - direction * i, n), ahead);
  p.recv(behind, mod(r - direction * hops, n));
}

// The n-1 chunks of the others: n/2 come from the left, the rest from the right in another lane.
template <class P>
void two_way_all_gather(P& p) {
  const int n = p.size();
  if (p.lane(0)) {
    p.copy(p.rank());
    travel(p, +1, n / 2);
  }
  if (p.lane(1)) travel(p, -1, (n - 1) / 2);
}

// Two mistakes that are easily made. The first: one hop too few; the farthest chunk is missing.
template <class P>
void one_hop_short(P& p) {
  p.copy(p.rank());
  travel(p, +1, p.size() - 2);
}
// The second: everyone waits for its neighbour before it says anything.
template <class P>
void all_wait_first(P& p) {
  const int n = p.size(), r = p.rank();
  p.copy(r);
  for (int i = 1; i < n; ++i) {
    p.recv(p.from(mod(r - 1, n)), mod(r - i, n));
    p.send(algos::out(mod(r - i, n)), p.to(mod(r + 1, n)));
  }
}

// ---- Recorded and proven -----------------------------------------------------------------------

using Recorder = void (*)(algos::TracePrims&);

algos::Program record(Recorder algorithm, int size) {
  algos::Program program{
      .collective = treering::Collective::kAllGather, .chunks = size, .ranks = {}};
  for (int rank = 0; rank < size; ++rank) {
    algos::TracePrims trace(rank, size, 0);
    algorithm(trace);
    program.ranks.push_back(std::move(trace).take());
  }
  return program;
}

// What the checker says with 2 slices per chunk and 3 slots per link; "" if the algorithm is right.
std::string objection(Recorder algorithm, int size) {
  const treering::Status verdict = algos::check(record(algorithm, size), 2, 3);
  return verdict.ok() ? "" : verdict.message();
}

int main() {
  tr::Communicator comm = must(tr::Communicator::from_env());
  if (comm.rank() == 0) {
    const algos::Program four = record(two_way_all_gather, 4);
    std::printf("rank 0 of 4:\n");
    for (const algos::Step& step : four.ranks[0].steps) {
      std::printf("  lane %d  %s\n", step.lane, to_string(four.ranks[0], step).c_str());
    }
    for (int n = 1; n <= 17; ++n) {
      const std::string wrong = objection(two_way_all_gather<algos::TracePrims>, n);
      check(wrong.empty(), wrong.c_str());
    }
    std::printf("proven for 1 to 17 ranks\n");

    const std::string shorter = objection(one_hop_short<algos::TracePrims>, 4);
    const std::string waiting = objection(all_wait_first<algos::TracePrims>, 4);
    check(!shorter.empty() && !waiting.empty(), "the checker finds both mistakes");
    std::printf("one hop short:  %s\neveryone waits: %s\n", shorter.c_str(), waiting.c_str());
  }

  tr::Stream stream = must(tr::Stream::create());
  example::Live live(comm, stream, 100.0f + comm.rank());
  two_way_all_gather(live);
  const std::vector<float>& all = live.finish();
  for (int q = 0; q < comm.size(); ++q) check(all[q] == 100.0f + q, "chunk q is rank q's");
  must(comm.barrier());
  if (comm.rank() == 0) {
    std::printf("and the same lines gathered %d real chunk%s\n", comm.size(),
                comm.size() == 1 ? "" : "s");
  }
  must(stream.destroy());
  must(comm.destroy());
}
