// A Prims for lesson 4 that carries verbs out, one element per chunk, over the public API. It knows
// the verbs that copy and move between single peers; the engine does far better, and all of them.
#pragma once

#include <span>
#include <vector>

#include "treering/treering.hpp"

#include "algos/prims.hpp"
#include "must.hpp"

namespace example {

namespace algos = treering::algos;

class Live : public algos::Verbs<Live> {
 public:
  // Sends go on the stream, since a neighbour may not listen yet.
  Live(tr::Communicator& comm, tr::Stream& stream, float mine)
      : comm_(comm), stream_(stream), mine_(mine), out_(comm.size()) {}

  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }
  bool lane(int) const { return true; }  // one lane after the other
  int from(int peer) const { return peer; }
  int to(int peer) const { return peer; }
  int nobody() const { return -1; }
  int nowhere() const { return -1; }

  void step(algos::Verb, int from, algos::Chunk local, algos::Chunk dst, int to, algos::Last) {
    float* data = local.space == algos::Space::kIn ? &mine_ : &out_[dst.index];
    if (from >= 0) must(comm_.recv(std::span(data, 1), from));
    if (to >= 0) must(comm_.send(std::span(data, 1), to, stream_));
    if (dst.space == algos::Space::kOut) out_[dst.index] = *data;
  }
  const std::vector<float>& finish() {
    must(stream_.synchronize());
    return out_;
  }

 private:
  tr::Communicator& comm_;
  tr::Stream& stream_;
  float mine_;
  std::vector<float> out_;
};

}  // namespace example
