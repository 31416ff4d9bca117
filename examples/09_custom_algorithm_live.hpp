// A Prims for lesson 4 that carries verbs out, one element per chunk, over the public API. It knows
// the verbs that copy and move between single peers, for an algorithm that fills each chunk of the
// result once; what it does not know it refuses. The engine does far better, and all of them.
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
      : comm_(comm), stream_(stream), mine_(mine), out_(comm.size()), is_full_(comm.size()) {}

  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }
  bool lane(int) const { return true; }  // one lane after the other
  int from(int peer) const { return peer; }
  int to(int peer) const { return peer; }
  int nobody() const { return -1; }
  int nowhere() const { return -1; }

  // Every verb is this step: fold what comes from `from` with `local`, store it to `dst` and `to`.
  void step(algos::Verb verb, int from, algos::Chunk local, algos::Chunk dst, int to, algos::Last) {
    using algos::Space;
    using algos::Verb;
    check(verb == Verb::kSend || verb == Verb::kRecv || verb == Verb::kRecvCopySend ||
              verb == Verb::kCopy,
          "this Prims knows send, recv, recv_copy_send and copy only");
    check(local.space != Space::kIn || local.index == rank(), "a rank has its own chunk to give");
    check(local.space != Space::kOut || is_full_[local.index], "what is sent has been received");
    if (dst.space == Space::kOut) {
      // A send of it may be on its way still.
      check(!is_full_[dst.index], "a chunk of the result is filled once");
      is_full_[dst.index] = true;
    }
    float* data = local.space == Space::kIn    ? &mine_
                  : local.space == Space::kOut ? &out_[local.index]
                                               : &out_[dst.index];
    if (from >= 0) must(comm_.recv(std::span(data, 1), from));
    if (to >= 0) must(comm_.send(std::span(data, 1), to, stream_));
    if (dst.space == Space::kOut) out_[dst.index] = *data;
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
  std::vector<bool> is_full_;  // chunks of out_ that have been stored
};

}  // namespace example
