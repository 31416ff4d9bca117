// What a chunk holds, as an expression: which ranks' inputs were folded, in which order and
// grouping.
//
// A leaf (rank, chunk) is a rank's input chunk. A fold is what one step computes from its inputs:
// children from left to right, rounded to the element type once, at its end. So an expression says
// which inputs are in a result (completeness), how often (double counting), in which order, and
// where it was rounded: the replay oracle computes a result's exact bits from it.
//
// Equal expressions are the same number (hash-consing). Ranks 0..ranks-1. Host only, one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace treering::algos {

using Expr = std::int32_t;
inline constexpr Expr kNoExpr = -1;  // nothing has been stored here

class Expressions {
 public:
  struct Node {
    std::int32_t chunk = 0;       // of all the leaves below
    std::int32_t leaf_rank = -1;  // of a leaf; a fold has -1
    bool finished = false;        // Last::kYes: what follows the fold has been applied
    bool in_rank_order = true;    // the leaves, left to right, are in rising rank order
    std::int32_t first_rank = 0;  // of the leftmost leaf
    std::int32_t last_rank = 0;   // of the rightmost leaf
    std::int32_t leaves = 1;
    std::int32_t first_child = 0;  // in children_
    std::int32_t child_count = 0;
  };

  explicit Expressions(int ranks) : words_((ranks + 63) / 64) {}

  Expr leaf(int rank, int chunk);
  // At least one child; all of the same chunk, none sharing a leaf (see overlap).
  Expr fold(std::span<const Expr> children, bool finished);

  const Node& node(Expr e) const { return nodes_[e]; }
  std::span<const Expr> children(Expr e) const {
    return std::span(children_).subspan(nodes_[e].first_child, nodes_[e].child_count);
  }
  bool contains(Expr e, int rank) const { return (set(e)[rank / 64] >> (rank % 64) & 1) != 0; }
  // A rank whose input is in both, or -1.
  int overlap(Expr a, Expr b) const;
  // All of the ranks 0..end-1, each exactly once.
  bool is_all_below(Expr e, int end) const {
    return nodes_[e].leaves == end && contains_all_below(e, end);
  }
  // One fold of leaves, no grouping: its bits depend on the order only.
  bool is_flat(Expr e) const;

  // "((2+3)+0)+1 of chunk 2"; a finished fold in brackets: "[0+1+2] of chunk 0".
  std::string text(Expr e) const;

 private:
  const std::uint64_t* set(Expr e) const { return &sets_[static_cast<std::size_t>(e) * words_]; }
  bool contains_all_below(Expr e, int end) const;
  std::string text_of(Expr e, bool outermost) const;
  Expr add(const Node& node);

  struct KeyHash {
    std::size_t operator()(const std::vector<Expr>& key) const;
  };
  std::size_t words_;  // of 64 ranks
  std::vector<Node> nodes_;
  std::vector<std::uint64_t> sets_;  // words_ per node: which ranks are in it
  std::vector<Expr> children_;
  std::unordered_map<std::vector<Expr>, Expr, KeyHash> known_;
};

}  // namespace treering::algos
