#include "algos/symbolic.hpp"

namespace treering::algos {
namespace {

// Keys of known_: a leaf is {kLeafKey, rank, chunk}, a fold {finished, children...}.
constexpr Expr kLeafKey = -1;

}  // namespace

std::size_t Expressions::KeyHash::operator()(const std::vector<Expr>& key) const {
  std::uint64_t hash = key.size();
  for (const Expr e : key) {
    hash = (hash ^ static_cast<std::uint32_t>(e)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

Expr Expressions::add(const Node& node) {
  nodes_.push_back(node);
  sets_.resize(sets_.size() + words_, 0);
  return static_cast<Expr>(nodes_.size()) - 1;
}

Expr Expressions::leaf(int rank, int chunk) {
  const auto [known, fresh] = known_.try_emplace({kLeafKey, rank, chunk}, kNoExpr);
  if (fresh) {
    Node node;
    node.chunk = chunk;
    node.leaf_rank = node.first_rank = node.last_rank = rank;
    known->second = add(node);
    sets_[known->second * words_ + rank / 64] |= std::uint64_t{1} << (rank % 64);
  }
  return known->second;
}

Expr Expressions::fold(std::span<const Expr> children, bool finished) {
  std::vector<Expr> key{finished ? 1 : 0};
  key.insert(key.end(), children.begin(), children.end());
  const auto [known, fresh] = known_.try_emplace(std::move(key), kNoExpr);
  if (!fresh) return known->second;

  Node node;
  node.chunk = nodes_[children.front()].chunk;
  node.finished = finished;
  node.first_rank = nodes_[children.front()].first_rank;
  node.last_rank = nodes_[children.back()].last_rank;
  node.leaves = 0;
  node.first_child = static_cast<std::int32_t>(children_.size());
  node.child_count = static_cast<std::int32_t>(children.size());
  int previous = -1;
  for (const Expr child : children) {
    const Node& c = nodes_[child];
    node.in_rank_order &= c.in_rank_order && previous < c.first_rank;
    node.leaves += c.leaves;
    previous = c.last_rank;
  }
  children_.insert(children_.end(), children.begin(), children.end());
  const Expr e = add(node);
  for (const Expr child : children) {
    for (std::size_t w = 0; w < words_; ++w) sets_[e * words_ + w] |= set(child)[w];
  }
  known->second = e;
  return e;
}

int Expressions::overlap(Expr a, Expr b) const {
  for (std::size_t w = 0; w < words_; ++w) {
    const std::uint64_t both = set(a)[w] & set(b)[w];
    if (both != 0) return static_cast<int>(w) * 64 + __builtin_ctzll(both);
  }
  return -1;
}

bool Expressions::contains_all_below(Expr e, int end) const {
  for (int rank = 0; rank < end; ++rank) {
    if (!contains(e, rank)) return false;
  }
  return true;
}

bool Expressions::is_flat(Expr e) const {
  for (const Expr child : children(e)) {
    if (nodes_[child].leaf_rank < 0) return false;
  }
  return nodes_[e].leaf_rank < 0;
}

std::string Expressions::text(Expr e) const {
  if (e == kNoExpr) return "nothing";
  const Node& node = nodes_[e];
  if (node.leaf_rank >= 0) {
    return "rank " + std::to_string(node.leaf_rank) + "'s chunk " + std::to_string(node.chunk);
  }
  return text_of(e, true) + " of chunk " + std::to_string(node.chunk);
}

std::string Expressions::text_of(Expr e, bool outermost) const {
  const Node& node = nodes_[e];
  if (node.leaf_rank >= 0) return std::to_string(node.leaf_rank);
  std::string text;
  for (const Expr child : children(e)) {
    if (!text.empty()) text += "+";
    text += text_of(child, false);
  }
  if (node.finished) return "[" + text + "]";
  return outermost ? text : "(" + text + ")";
}

}  // namespace treering::algos
