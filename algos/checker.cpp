#include "algos/checker.hpp"

#include <string>
#include <utility>

#include "algos/races.hpp"
#include "algos/replay.hpp"

namespace treering::algos {
namespace {

// Replay first: it says more precisely what is wrong with a step.
class Meaning : public Network::Observer {
 public:
  explicit Meaning(const Network& network) : replay(network), races(network) {}

  Status on_step(const Network::Event& event) override {
    TR_RETURN_IF_ERROR(replay.on_step(event));
    return races.on_step(event);
  }

  Replay replay;
  Races races;
};

// The input chunk that a collective that moves brings to out[chunk] of rank.
std::pair<int, int> moved_from(const Program& program, int rank, int chunk) {
  switch (program.collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      return {chunk, chunk};
    case Collective::kAllToAll:
      return {chunk, rank};
    default:
      return {program.root, chunk};  // broadcast, scatter
  }
}

std::string place(int rank, int chunk) {
  return "rank " + std::to_string(rank) + " ends with out[" + std::to_string(chunk) + "] = ";
}

Status check_moved(const Program& program, const Replay& replay, int rank, int chunk) {
  const auto [source_rank, source_chunk] = moved_from(program, rank, chunk);
  const Expr value = replay.out(rank, chunk);
  if (value != kNoExpr) {
    const Expressions::Node& node = replay.expressions().node(value);
    if (node.leaf_rank == source_rank && node.chunk == source_chunk) return {};
  }
  return invalid_argument(place(rank, chunk) + replay.expressions().text(value) +
                          " instead of rank " + std::to_string(source_rank) + "'s chunk " +
                          std::to_string(source_chunk));
}

Status check_folded(const Program& program, const Replay& replay, int rank, int chunk) {
  const Expressions& expressions = replay.expressions();
  const Expr value = replay.out(rank, chunk);
  const std::string found = place(rank, chunk) + expressions.text(value);
  if (value == kNoExpr) return invalid_argument(found);
  const Expressions::Node& node = expressions.node(value);
  const int ranks = ranks_folded(program, rank);
  if (node.chunk != chunk || !expressions.is_all_below(value, ranks)) {
    return invalid_argument(found + " instead of a fold of the ranks 0.." +
                            std::to_string(ranks - 1) + " of chunk " + std::to_string(chunk));
  }
  if (!node.finished) {
    return invalid_argument(found + ": no step that completes this fold is marked as last");
  }
  if (program.keeps_order && !node.in_rank_order) {
    return invalid_argument(found + ", which is not in rank order");
  }
  if (program.order_is_fixed && !(node.in_rank_order && expressions.is_flat(value))) {
    return invalid_argument(found + ", which is not one fold in rank order");
  }
  if (program.collective == Collective::kAllReduce && value != replay.out(0, chunk)) {
    return invalid_argument(found + ", but rank 0 with " + expressions.text(replay.out(0, chunk)) +
                            ": their bits may differ");
  }
  return {};
}

Status check_results(const Program& program, const Replay& replay) {
  if (program.collective == Collective::kBarrier) return {};
  for (int rank = 0; rank < program.size(); ++rank) {
    for (int chunk = 0; chunk < program.chunks; ++chunk) {
      if (!has_out(program, rank, chunk)) continue;
      TR_RETURN_IF_ERROR(folds(program.collective) ? check_folded(program, replay, rank, chunk)
                                                   : check_moved(program, replay, rank, chunk));
    }
  }
  return {};
}

}  // namespace

Status check_meaning(const Network& network) {
  Meaning meaning(network);
  TR_RETURN_IF_ERROR(network.run(1, kUnlimitedSlots, 1, &meaning));
  TR_RETURN_IF_ERROR(check_results(network.program(), meaning.replay));
  return meaning.races.finish();
}

Status check(const Program& program, int slices, int slots, int rounds) {
  TR_ASSIGN_OR_RETURN(const Network network, Network::build(program));
  TR_RETURN_IF_ERROR(check_meaning(network));
  return network.run(slices, slots, rounds);
}

Result<int> minimum_slots(const Network& network, int slices) {
  TR_RETURN_IF_ERROR(network.run(slices, kUnlimitedSlots, 1));
  int slots = 1;
  while (!network.run(slices, slots, 1).ok()) ++slots;
  return slots;
}

Result<int> minimum_slots(const Algorithm& algorithm, int size, int slices, int root) {
  const Program program = make_program(algorithm, size, root);
  TR_ASSIGN_OR_RETURN(const Network network, Network::build(program));
  return minimum_slots(network, slices);
}

Result<std::vector<Traffic>> traffic(const Program& program) {
  TR_ASSIGN_OR_RETURN(const Network network, Network::build(program));
  Replay replay(network);
  TR_RETURN_IF_ERROR(network.run(1, kUnlimitedSlots, 1, &replay));
  std::vector<Traffic> all;
  for (int link = 0; link < network.links(); ++link) {
    Traffic t{network.link_id(link), static_cast<int>(replay.sent(link).size()), {}};
    for (const int chunk : replay.sent(link)) {
      if (chunk != Replay::kPublished) t.chunks.push_back(chunk);
    }
    all.push_back(std::move(t));
  }
  return all;
}

}  // namespace treering::algos
