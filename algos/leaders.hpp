// Leaders: a flat algorithm between hosts becomes one between all ranks.
//
// One rank of each host, its leader, runs the flat algorithm with the hosts as ranks, and stands
// for all of its host: where the algorithm reads in(c), the leader folds the inputs of its whole
// host; where it stores a finished chunk to out(c), the leader shows it to its whole host. The
// other members follow the same program and do their end of that: they send in(c), they receive
// out(c). So each algorithm between hosts exists once, in its own file.
//
// For small vectors and for few bytes between hosts: 2 steps inside hosts more than the flat
// algorithm over H ranks has. Where each host's ranks are consecutive, folds stay in rank order if
// the flat algorithm's are.
#pragma once

#include "algos/prims.hpp"
#include "algos/recursive.hpp"
#include "algos/tree.hpp"

namespace treering::algos::two_level {

// What a host's members have to do with in and out.
enum class Members : std::uint8_t { kFold, kShow, kFoldAndShow };

// The primitives of P for a leader. Chunk c goes over channel c inside a host: the flat algorithm
// may use chunk c in lanes of its own then, as trees do. At most two chunks.
template <class P>
class Leaders : public Verbs<Leaders<P>> {
 public:
  // root: a rank, which leads its host; -1: there is none.
  TR_HD Leaders(P& p, Members members, int root)
      : p_(p),
        at_(p.hosts()),
        root_(root),
        folds_(members != Members::kShow),
        shows_(members != Members::kFold),
        alone_(at_.members_of(rank()) == 1) {}

  TR_HD int rank() const { return at_.host_of(p_.rank()); }
  TR_HD int size() const { return at_.count; }
  TR_HD int root() const { return root_ < 0 ? 0 : at_.host_of(root_); }
  TR_HD bool lane(int i) { return p_.lane(i); }

  TR_HD auto nobody() const { return p_.nobody(); }
  TR_HD auto nowhere() const { return p_.nowhere(); }
  TR_HD auto from(int host, int channel = 0) const { return p_.from(leader(host), channel); }
  TR_HD auto to(int host, int channel = 0) const { return p_.to(leader(host), channel); }
  TR_HD auto from(const Peers& hosts, int channel = 0) const {
    return p_.from(leaders(hosts), channel);
  }
  TR_HD auto to(const Peers& hosts, int channel = 0) const {
    return p_.to(leaders(hosts), channel);
  }

  // For flat algorithms that read in(c) more than once: the host's inputs are folded into the
  // leader's out(c) first, which stands for in(c) from then on.
  TR_HD void fold_members_first(int c) {
    if (alone_) return;
    if (leads()) {
      p_.recv_reduce_copy(p_.from_host(c), c);
    } else {
      p_.send(c, p_.to(leader(rank()), c));
    }
    folded_first_ = true;
  }

  template <class From, class To>
  TR_HD void step(Verb verb, const From& from, Chunk local, Chunk dst, const To& to, Last last) {
    const bool is_fold = receives(verb) && local.space != Space::kNone;
    const bool gather = folds_ && !folded_first_ && local.space == Space::kIn && !alone_;
    const bool show =
        shows_ && dst.space == Space::kOut && (!is_fold || last == Last::kYes) && !alone_;
    if (!leads()) {
      if (gather) p_.send(local, p_.to(leader(rank()), local.index));
      if (show) p_.recv(p_.from(leader(rank()), dst.index), dst);
      return;
    }
    if (folded_first_ && local.space == Space::kIn) local.space = Space::kOut;
    if (verb == Verb::kCopy && show) {  // a root's own: nothing is received
      p_.copy(local, dst);
      p_.send(local, p_.to_host(local.index));
      return;
    }
    const bool stores = dst.space != Space::kNone;
    const Verb wider =
        widened(gather || receives(verb), local.space != Space::kNone, stores, show || sends(verb));
    const auto none_from = p_.nobody();
    const auto none_to = p_.nowhere();
    p_.step(wider, from | (gather ? p_.from_host(local.index) : none_from), local, dst,
            to | (show ? p_.to_host(dst.index) : none_to), last);
  }

 private:
  TR_HD bool leads() const { return leader(rank()) == p_.rank(); }
  TR_HD int leader(int host) const {
    return root_ >= 0 && host == at_.host_of(root_) ? root_ : at_.rank_of(host, 0);
  }
  TR_HD Peers leaders(const Peers& hosts) const {
    Peers ranks;
    for (int i = 0; i < hosts.count; ++i) ranks.add(leader(hosts.rank[i]));
    return ranks;
  }
  TR_HD static constexpr bool receives(Verb v) { return v != Verb::kSend && v != Verb::kCopy; }
  TR_HD static constexpr bool sends(Verb v) {
    return v == Verb::kSend || v == Verb::kRecvSend || v == Verb::kRecvReduceSend ||
           v == Verb::kRecvReduceCopySend || v == Verb::kRecvCopySend;
  }
  TR_HD static constexpr Verb widened(bool receives, bool reads, bool stores, bool sends) {
    if (!receives) return stores ? Verb::kCopy : Verb::kSend;
    if (!stores) return reads ? Verb::kRecvReduceSend : Verb::kRecvSend;
    if (reads) return sends ? Verb::kRecvReduceCopySend : Verb::kRecvReduceCopy;
    return sends ? Verb::kRecvCopySend : Verb::kRecv;
  }

  P& p_;
  const Hosts at_;
  const int root_;
  const bool folds_, shows_, alone_;
  bool folded_first_ = false;
};

// log2 H exchanges of the whole vector between hosts.
template <class P>
TR_HD void doubling_all_reduce(P& p) {
  Leaders<P> leaders(p, Members::kFoldAndShow, -1);
  leaders.fold_members_first(0);
  recursive_doubling_all_reduce(leaders);
}

template <class P>
TR_HD void tree_all_reduce(P& p) {
  Leaders<P> leaders(p, Members::kFoldAndShow, -1);
  tree::all_reduce(leaders);
}

template <class P>
TR_HD void tree_broadcast(P& p) {
  Leaders<P> leaders(p, Members::kShow, p.root());
  tree::broadcast(leaders);
}

template <class P>
TR_HD void tree_reduce(P& p) {
  Leaders<P> leaders(p, Members::kFold, p.root());
  tree::reduce(leaders);
}

}  // namespace treering::algos::two_level
