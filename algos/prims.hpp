// The verbs that every algorithm is written in.
//
// An algorithm is a function template over a Prims type P. The same lines run over TracePrims (host
// executor, checker, drawings) and over the CUDA primitives. Control flow depends on rank, size,
// root and chunk numbers only, never on data.
//
//   chunk   the part of the vector that a step names by number; in(c) is the caller's send buffer,
//           out(c) the receive buffer. A plain number means in(c) where it is read and out(c) where
//           it is written.
//   from/to sets of links: one peer, several peers, each peer, or the one-to-many (cast) link of a
//           rank.
//   lane    a sequential program with blocking verbs; lanes meet only through links. A link is used
//           by one lane at either end.
//
// Folding order: a verb that reduces folds its inputs in the order of the ranks they come from
// directly, the own input at its place. So the lower rank is always on the left.
//
// Last::kYes marks the step that completes a fold over all ranks (the checker proves it); what it
// stores and sends is final and is folded no further. In place, in(c) and out(c) are the same
// memory, and a copy of a chunk onto itself without Last::kYes does nothing. This header and the
// algorithms include constexpr parts of the standard library only.
#pragma once

#include <cstdint>

#include "core/hosts.hpp"
#include "core/macros.hpp"

namespace treering::algos {

enum class Verb : std::uint8_t {
  kSend,
  kRecv,
  kRecvSend,
  kRecvReduceSend,
  kRecvReduceCopy,
  kRecvReduceCopySend,
  kRecvCopySend,
  kCopy,
  kPublish,
  kAwait,
  kReduceFromAll,
  kReduceStoreAll,
  kCopyFrom,
  kCopyTo,
};
const char* verb_name(Verb verb);  // "recv_reduce_send"

enum class Last : std::uint8_t { kNo, kYes };

enum class Space : std::uint8_t {
  kNone,
  kIn,       // the caller's send buffer
  kOut,      // the caller's receive buffer
  kLink,     // a slot of a link
  kToken,    // the few bytes that publish() sends: where a rank's buffers lie in its windows
  kPeerIn,   // a peer's send buffer, read through its window
  kPeerOut,  // a peer's receive buffer, written (or read) through its window
};

struct Chunk {
  Space space = Space::kNone;
  std::int32_t index = 0;
};
TR_HD constexpr Chunk in(int c) { return {Space::kIn, c}; }
TR_HD constexpr Chunk out(int c) { return {Space::kOut, c}; }

// A few peers (a tree node's children).
struct Peers {
  std::int32_t count = 0;
  std::int32_t rank[3] = {-1, -1, -1};
  TR_HD constexpr void add(int r) { rank[count++] = r; }
};

TR_HD constexpr int mod(int a, int n) { return ((a % n) + n) % n; }

// The verbs, once, over Derived::step(verb, from, local, dst, to, last): fold what comes from
// `from` with `local` (if any) and store the result to `dst` (if any) and `to`. Derived also
// provides
//   rank(), size(), root()            who am I
//   lane(i)                           true if the caller shall run lane i now
//   from(q), from(Peers), from_ranks(a, b), from_each(), from_cast(q), from_all_casts(), peek(q)
//   to(q), to(Peers), to_ranks(a, b), to_each(), to_all(), nowhere(), nobody()
// from_ranks(a, b), to_ranks(a, b): the pair links of ranks a..b-1, the own rank left out; _each:
// of all ranks. to_all() is the own cast link, from_cast(q) and from_all_casts() read them; every
// other rank must receive what is sent there. peek(q): as from(q), but the message stays for the
// next receive from q. A last argument `channel` (default 0) of from, to and peek tells apart links
// between the same ranks. Algorithms that need to know which ranks share a host ask hosts();
// from_host(channel) and to_host(channel) are the links of all other ranks of the own host. `|` of
// two sets is both, disjoint, together.
template <class Derived>
class Verbs {
 public:
  template <class To>
  TR_HD void send(Chunk src, const To& to) {
    self().step(Verb::kSend, self().nobody(), src, Chunk{}, to, Last::kNo);
  }
  template <class From>
  TR_HD void recv(const From& from, Chunk dst) {
    self().step(Verb::kRecv, from, Chunk{}, dst, self().nowhere(), Last::kNo);
  }
  // Relay: chunk c passes through without touching the caller's buffers.
  template <class From, class To>
  TR_HD void recv_send(const From& from, int c, const To& to) {
    self().step(Verb::kRecvSend, from, Chunk{Space::kNone, c}, Chunk{Space::kNone, c}, to,
                Last::kNo);
  }
  template <class From, class To>
  TR_HD void recv_reduce_send(const From& from, Chunk local, const To& to, Last last = Last::kNo) {
    self().step(Verb::kRecvReduceSend, from, local, Chunk{}, to, last);
  }
  template <class From>
  TR_HD void recv_reduce_copy(const From& from, Chunk local, Chunk dst, Last last = Last::kNo) {
    self().step(Verb::kRecvReduceCopy, from, local, dst, self().nowhere(), last);
  }
  template <class From, class To>
  TR_HD void recv_reduce_copy_send(const From& from, Chunk local, Chunk dst, const To& to,
                                   Last last = Last::kNo) {
    self().step(Verb::kRecvReduceCopySend, from, local, dst, to, last);
  }
  template <class From, class To>
  TR_HD void recv_copy_send(const From& from, Chunk dst, const To& to) {
    self().step(Verb::kRecvCopySend, from, Chunk{}, dst, to, Last::kNo);
  }
  TR_HD void copy(Chunk src, Chunk dst, Last last = Last::kNo) {
    self().step(Verb::kCopy, self().nobody(), src, dst, self().nowhere(), last);
  }
  // Send `count` chunks from `give` on and receive-reduce `count` chunks into out(take...),
  // interleaved chunk by chunk so that a few slots suffice. `local` says where the own part of the
  // fold is read.
  template <class To, class From>
  TR_HD void exchange(const To& to, Chunk give, const From& from, Chunk local, int take, int count,
                      Last last = Last::kNo) {
    for (int i = 0; i < count; ++i) {
      send(Chunk{give.space, give.index + i}, to);
      recv_reduce_copy(from, Chunk{local.space, local.index + i}, out(take + i), last);
    }
  }

  // A plain chunk number: read from in(c), write to out(c).
  template <class To>
  TR_HD void send(int c, const To& to) {
    send(in(c), to);
  }
  template <class From>
  TR_HD void recv(const From& from, int c) {
    recv(from, out(c));
  }
  template <class From, class To>
  TR_HD void recv_reduce_send(const From& from, int c, const To& to, Last last = Last::kNo) {
    recv_reduce_send(from, in(c), to, last);
  }
  template <class From>
  TR_HD void recv_reduce_copy(const From& from, int c, Last last = Last::kNo) {
    recv_reduce_copy(from, in(c), out(c), last);
  }
  template <class From, class To>
  TR_HD void recv_reduce_copy_send(const From& from, int c, const To& to, Last last = Last::kNo) {
    recv_reduce_copy_send(from, in(c), out(c), to, last);
  }
  template <class From, class To>
  TR_HD void recv_copy_send(const From& from, int c, const To& to) {
    recv_copy_send(from, out(c), to);
  }
  TR_HD void copy(int c, Last last = Last::kNo) { copy(in(c), out(c), last); }

  // Window verbs, the one-sided family; Derived provides
  //   publish()                     tell every rank where my buffers are and that they may be used
  //   await_all()                   wait for the matching publish() of every other rank
  //   reduce_from_all(chunk, last)  fold `chunk` of every rank's in, in rank order, into my out
  //   reduce_store_all(chunk, last) the same, stored to every rank's out
  //   copy_from(q, chunk)           copy `chunk` of rank q's in to my out
  //   copy_from(q, src, dst)        the same for any chunk of rank q's in or out and of my out
  //   copy_to(q, chunk)             copy `chunk` of my in to rank q's out
  // A second publish/await_all pair after them says "I have read and written what I had to".

 private:
  TR_HD Derived& self() { return static_cast<Derived&>(*this); }
};

}  // namespace treering::algos
