#include "algos/replay.hpp"

#include <utility>

namespace treering::algos {

Replay::Replay(const Network& network)
    : network_(network),
      program_(network.program()),
      expressions_(program_.size()),
      out_(static_cast<std::size_t>(program_.size()) * program_.chunks, kNoExpr),
      links_(network.links()) {}

int ranks_folded(const Program& program, int rank) {
  if (program.collective == Collective::kScan) return rank + 1;
  if (program.collective == Collective::kExscan) return rank;
  return program.size();
}

Status Replay::on_step(const Network::Event& event) {
  const Verb verb = event.step->verb;
  if (verb == Verb::kPublish) {
    for (const Network::Message& m : event.out_messages) {
      links_[m.link].values.push_back(kNoExpr);
      links_[m.link].chunks.push_back(kPublished);
    }
    return {};
  }
  if (verb == Verb::kAwait) {
    for (const Network::Message& m : event.in_messages) {
      if (links_[m.link].chunks[m.number] != kPublished) {
        return invalid_argument("the message is not a publish");
      }
    }
    return {};
  }

  std::vector<Expr> values;
  for (int i = 0; i < event.step->inputs; ++i) {
    TR_ASSIGN_OR_RETURN(const Expr value, read(event, i));
    values.push_back(value);
  }
  TR_ASSIGN_OR_RETURN(const Expr value, compute(event, values));
  for (int i = 0; i < event.step->outputs; ++i) {
    const Operand& o = event.outputs[i];
    if (o.space == Space::kLink) {
      TR_RETURN_IF_ERROR(sendable(o));
      LinkLog& log = links_[event.out_messages[i].link];
      log.values.push_back(value);
      log.chunks.push_back(o.chunk);
    } else {
      out_[cell(o.space == Space::kPeerOut ? o.peer : event.rank, o.chunk)] = value;
    }
  }
  return {};
}

Result<Expr> Replay::read(const Network::Event& event, int input) {
  const Operand& o = event.inputs[input];
  switch (o.space) {
    case Space::kIn:
    case Space::kPeerIn: {
      const int owner = o.space == Space::kPeerIn ? o.peer : event.rank;
      const Expr leaf = expressions_.leaf(owner, o.chunk);
      const Expr result = out_[cell(owner, o.chunk)];
      const bool matters = program_.collective != Collective::kBarrier;
      if (matters && program_.in_place && result != kNoExpr && result != leaf) {
        return invalid_argument("in[" + std::to_string(o.chunk) + "] of rank " +
                                std::to_string(owner) + " has been overwritten (in place) by " +
                                expressions_.text(result));
      }
      return leaf;
    }
    case Space::kOut:
    case Space::kPeerOut: {
      const Expr value = out_[cell(o.space == Space::kPeerOut ? o.peer : event.rank, o.chunk)];
      if (value == kNoExpr) {
        return invalid_argument("out[" + std::to_string(o.chunk) + "] has not been written yet");
      }
      return value;
    }
    case Space::kLink: {
      const Network::Message m = event.in_messages[input];
      TR_RETURN_IF_ERROR(receivable(o, m));
      return links_[m.link].values[m.number];
    }
    default:
      return invalid_argument("it reads what is no chunk");
  }
}

// Both ends of a message must know its size. A chunk has the same number at both ends; the parts of
// an all-to-all have not (in c of the sender is out r of the receiver c), so there the receiver
// must be where the sender's part ends its way, or all parts be equal.
Status Replay::receivable(const Operand& o, const Network::Message& m) const {
  const LinkLog& log = links_[m.link];
  if (log.chunks[m.number] == kPublished) return invalid_argument("the message is a publish");
  if (program_.collective != Collective::kAllToAll) {
    const int sent = log.chunks[m.number];
    if (sent == o.chunk) return {};
    return invalid_argument("the message on " + to_string(o.link) + " carries chunk " +
                            std::to_string(sent));
  }
  if (!program_.uneven || o.chunk == o.link.src) return {};
  return invalid_argument("uneven: the size of a part from rank " + std::to_string(o.link.src) +
                          " is not that of chunk " + std::to_string(o.chunk));
}

Status Replay::sendable(const Operand& o) const {
  if (!program_.uneven) return {};
  switch (program_.collective) {
    case Collective::kAllToAll:
      if (o.chunk == o.link.dst) return {};
      break;
    case Collective::kGather:
    case Collective::kScatter:
      // Only the root and its owner know the size of a part.
      if ((o.link.src == program_.root || o.link.src == o.chunk) &&
          (o.link.dst == program_.root || o.link.dst == o.chunk)) {
        return {};
      }
      break;
    default:
      return {};
  }
  return invalid_argument("uneven: both ends of " + to_string(o.link) +
                          " do not know the size of chunk " + std::to_string(o.chunk));
}

Result<Expr> Replay::compute(const Network::Event& event, const std::vector<Expr>& values) {
  const bool last = event.step->last == Last::kYes;
  if (!folds(program_.collective)) {
    if (values.size() > 1) return invalid_argument("it folds, but the collective only moves");
    if (last) return invalid_argument("it is marked as last, but the collective does not fold");
    return values.front();
  }
  if (values.size() == 1 && !last) return values.front();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Expressions::Node& node = expressions_.node(values[i]);
    if (node.finished) {
      return invalid_argument("it folds a finished result: " + expressions_.text(values[i]));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (expressions_.node(values[j]).chunk != node.chunk) {
        return invalid_argument("it folds " + expressions_.text(values[j]) + " with " +
                                expressions_.text(values[i]));
      }
      const int twice = expressions_.overlap(values[i], values[j]);
      if (twice >= 0) {
        return invalid_argument("it folds rank " + std::to_string(twice) +
                                "'s input twice: " + expressions_.text(values[j]) + " with " +
                                expressions_.text(values[i]));
      }
    }
  }
  const Expr result = expressions_.fold(values, last);
  if (last && !expressions_.is_all_below(result, ranks_folded(program_, event.rank))) {
    return invalid_argument("it is marked as last, but its fold is not complete: " +
                            expressions_.text(result));
  }
  return result;
}

}  // namespace treering::algos
