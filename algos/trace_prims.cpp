#include "algos/trace_prims.hpp"

#include <algorithm>
#include <utility>

namespace treering::algos {

TracePrims::TracePrims(int rank, int size, int root, const Hosts& hosts)
    : root_(root), hosts_(hosts) {
  schedule_.rank = rank;
  schedule_.size = size;
}

bool TracePrims::lane(int i) {
  lane_ = i;
  schedule_.lanes = std::max(schedule_.lanes, i + 1);
  return true;
}

std::vector<Operand> TracePrims::both(std::vector<Operand> a, const std::vector<Operand>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Operand TracePrims::pair(int src, int dst, int channel) const {
  Operand o;
  o.space = Space::kLink;
  o.link = {LinkId::Kind::kPair, static_cast<std::uint8_t>(channel), src, dst};
  return o;
}

Operand TracePrims::cast(int src) const {
  Operand o;
  o.space = Space::kLink;
  o.link = {LinkId::Kind::kCast, 0, src, -1};
  return o;
}

TracePrims::From TracePrims::from(int q, int channel) const { return {{pair(q, rank(), channel)}}; }

TracePrims::From TracePrims::from(const Peers& peers, int channel) const {
  From set;
  for (int i = 0; i < peers.count; ++i) set.links.push_back(pair(peers.rank[i], rank(), channel));
  return set;
}

TracePrims::From TracePrims::from_ranks(int first, int last) const {
  From set;
  for (int q = first; q < last; ++q) {
    if (q != rank()) set.links.push_back(pair(q, rank(), 0));
  }
  return set;
}

TracePrims::From TracePrims::from_cast(int q) const { return {{cast(q)}}; }

TracePrims::From TracePrims::from_all_casts() const {
  From set;
  for (int q = 0; q < size(); ++q) {
    if (q != rank()) set.links.push_back(cast(q));
  }
  return set;
}

TracePrims::From TracePrims::from_host(int channel) const {
  From set;
  const int host = hosts_.host_of(rank());
  for (int m = 0; m < hosts_.members_of(host); ++m) {
    const int q = hosts_.rank_of(host, m);
    if (q != rank()) set.links.push_back(pair(q, rank(), channel));
  }
  return set;
}

TracePrims::From TracePrims::peek(int q, int channel) const {
  From set = from(q, channel);
  set.links.front().peek = true;
  return set;
}

TracePrims::To TracePrims::to(int q, int channel) const { return {{pair(rank(), q, channel)}}; }

TracePrims::To TracePrims::to(const Peers& peers, int channel) const {
  To set;
  for (int i = 0; i < peers.count; ++i) set.links.push_back(pair(rank(), peers.rank[i], channel));
  return set;
}

TracePrims::To TracePrims::to_ranks(int first, int last) const {
  To set;
  for (int q = first; q < last; ++q) {
    if (q != rank()) set.links.push_back(pair(rank(), q, 0));
  }
  return set;
}

TracePrims::To TracePrims::to_host(int channel) const {
  To set;
  const int host = hosts_.host_of(rank());
  for (int m = 0; m < hosts_.members_of(host); ++m) {
    const int q = hosts_.rank_of(host, m);
    if (q != rank()) set.links.push_back(pair(rank(), q, channel));
  }
  return set;
}

TracePrims::To TracePrims::to_all() const { return {{cast(rank())}}; }

void TracePrims::step(Verb verb, const From& from, Chunk local, Chunk dst, const To& to,
                      Last last) {
  // The chunk that the messages of this step carry. An incoming message and the outgoing one are
  // about the same chunk; only a local copy may rename it.
  const std::int32_t incoming = dst.space != Space::kNone ? dst.index : local.index;
  const std::int32_t outgoing =
      local.space != Space::kNone || from.links.empty() ? local.index : dst.index;

  std::vector<Operand> inputs = from.links;
  for (Operand& o : inputs) o.chunk = incoming;
  if (local.space != Space::kNone) {
    Operand own;
    own.space = local.space;
    own.chunk = local.index;
    inputs.push_back(own);
  }
  // Rank order of the direct sources, the own input at its place.
  const auto source = [&](const Operand& o) {
    return o.space == Space::kLink ? o.link.src : rank();
  };
  std::stable_sort(inputs.begin(), inputs.end(),
                   [&](const Operand& a, const Operand& b) { return source(a) < source(b); });

  std::vector<Operand> outputs;
  if (dst.space != Space::kNone) {
    Operand own;
    own.space = dst.space;
    own.chunk = dst.index;
    outputs.push_back(own);
  }
  for (Operand o : to.links) {
    o.chunk = outgoing;
    outputs.push_back(o);
  }
  add(verb, last, inputs, outputs);
}

void TracePrims::publish() {
  Operand token;
  token.space = Space::kToken;
  token.peer = rank();
  Operand link = cast(rank());
  add(Verb::kPublish, Last::kNo, {token}, {link});
}

void TracePrims::await_all() {
  for (int q = 0; q < size(); ++q) {
    if (q == rank()) continue;
    Operand token;
    token.space = Space::kToken;
    token.peer = q;
    add(Verb::kAwait, Last::kNo, {cast(q)}, {token});
  }
}

void TracePrims::reduce_from_all(int chunk, Last last) {
  std::vector<Operand> inputs(size());
  for (int q = 0; q < size(); ++q) {
    inputs[q].space = q == rank() ? Space::kIn : Space::kPeerIn;
    inputs[q].peer = q == rank() ? -1 : q;
    inputs[q].chunk = chunk;
  }
  Operand own;
  own.space = Space::kOut;
  own.chunk = chunk;
  add(Verb::kReduceFromAll, last, inputs, {own});
}

void TracePrims::reduce_store_all(int chunk, Last last) {
  std::vector<Operand> inputs(size()), outputs(size());
  for (int q = 0; q < size(); ++q) {
    inputs[q].space = q == rank() ? Space::kIn : Space::kPeerIn;
    outputs[q].space = q == rank() ? Space::kOut : Space::kPeerOut;
    inputs[q].peer = outputs[q].peer = q == rank() ? -1 : q;
    inputs[q].chunk = outputs[q].chunk = chunk;
  }
  add(Verb::kReduceStoreAll, last, inputs, outputs);
}

void TracePrims::copy_from(int q, Chunk src, Chunk dst) {
  Operand theirs, own;
  theirs.space = src.space == Space::kIn ? Space::kPeerIn : Space::kPeerOut;
  theirs.peer = q;
  theirs.chunk = src.index;
  own.space = dst.space;
  own.chunk = dst.index;
  add(Verb::kCopyFrom, Last::kNo, {theirs}, {own});
}

void TracePrims::copy_to(int q, int chunk) {
  Operand own, theirs;
  own.space = Space::kIn;
  theirs.space = Space::kPeerOut;
  theirs.peer = q;
  own.chunk = theirs.chunk = chunk;
  add(Verb::kCopyTo, Last::kNo, {own}, {theirs});
}

void TracePrims::add(Verb verb, Last last, const std::vector<Operand>& inputs,
                     const std::vector<Operand>& outputs) {
  Step s;
  s.verb = verb;
  s.last = last;
  s.lane = lane_;
  s.first_operand = static_cast<std::int32_t>(schedule_.operands.size());
  s.inputs = static_cast<std::int32_t>(inputs.size());
  s.outputs = static_cast<std::int32_t>(outputs.size());
  schedule_.operands.insert(schedule_.operands.end(), inputs.begin(), inputs.end());
  schedule_.operands.insert(schedule_.operands.end(), outputs.begin(), outputs.end());
  schedule_.steps.push_back(s);
}

}  // namespace treering::algos
