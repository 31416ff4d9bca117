// Rings and trees as text.
#include <algorithm>

#include "cli/topo/view.hpp"
#include "topo/text.hpp"

namespace treering::topo_view {
namespace {

using namespace topo;

constexpr std::size_t kMostMembers = 32;  // of one line

std::string speed(double gb_s) { return format_gb_s(gb_s) + " GB/s"; }

std::string sentences(const std::vector<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) text += "  " + reason + "\n";
  return text;
}

std::string chain_text(const Graph& graph, const std::vector<NodeId>& order) {
  std::string text;
  for (std::size_t i = 0; i < std::min(order.size(), kMostMembers); ++i) {
    text += (i == 0 ? "" : " - ") + graph.at(order[i]).name;
  }
  if (order.size() > kMostMembers) {
    text += " - ... " + std::to_string(order.size() - kMostMembers) + " more";
  }
  return text;
}

// "GPU3 (GPU1 (GPU0, GPU2), GPU5)"
std::string below_text(const Graph& graph, const Tree& tree, std::size_t member) {
  std::string text;
  for (std::size_t i = 0; i < tree.members.size(); ++i) {
    if (tree.parent[i] != static_cast<int>(member)) continue;
    text += (text.empty() ? "" : ", ") + below_text(graph, tree, i);
  }
  const std::string& name = graph.at(tree.members[member]).name;
  return text.empty() ? name : name + " (" + text + ")";
}

std::size_t root_of(const Tree& tree) {
  const auto at = std::find(tree.parent.begin(), tree.parent.end(), kNone);
  return static_cast<std::size_t>(at - tree.parent.begin());
}

bool is_chain(const Tree& tree) {
  for (std::size_t i = 0; i < tree.parent.size(); ++i) {
    if (tree.parent[i] != static_cast<int>(i) - 1) return false;
  }
  return true;
}

}  // namespace

std::string ring_text(const Graph& graph, const Ring& ring) {
  if (ring.nic_in == kNone)
    return chain_text(graph, ring.order) + " - " + graph.at(ring.order.front()).name;
  return "[" + graph.at(ring.nic_in).name + "] " + chain_text(graph, ring.order) + " [" +
         graph.at(ring.nic_out).name + "]";
}

std::string tree_text(const Graph& graph, const Tree& tree) {
  const std::string rail = tree.rail == kNone ? "" : "[" + graph.at(tree.rail).name + "] ";
  if (is_chain(tree)) return rail + chain_text(graph, tree.members);
  if (tree.members.size() <= kMostMembers) return rail + below_text(graph, tree, root_of(tree));
  return rail + graph.at(tree.members[root_of(tree)]).name + " above " +
         std::to_string(tree.members.size() - 1) + " others";
}

std::string rings_title(const RingPlan& plan) {
  std::string text = in_words(plan.rings.size(), "ring") + ", " + speed(plan.gb_s) + " together";
  if (plan.bound_gb_s > 0) text += " of at most " + format_gb_s(plan.bound_gb_s);
  return text;
}

std::string trees_title(const TreePlan& plan) {
  return in_words(plan.trees.size(), "tree") + ", " + speed(plan.gb_s) +
         " of an all-reduce together";
}

std::string to_text(const Graph& graph, const RingPlan& rings, const TreePlan& trees) {
  std::string text = graph.name + ": " + rings_title(rings) + "\n" + sentences(rings.reasons);
  for (std::size_t i = 0; i < rings.rings.size(); ++i) {
    const Ring& ring = rings.rings[i];
    text += "ring " + std::to_string(i) + "  " + speed(ring.gb_s) + "  " + ring_text(graph, ring) +
            "\n    " + ring.why + "\n";
  }
  text += "\n" + trees_title(trees) + "\n" + sentences(trees.reasons);
  for (std::size_t i = 0; i < trees.trees.size(); ++i) {
    const Tree& tree = trees.trees[i];
    text += "tree " + std::to_string(i) + "  " + speed(tree.gb_s) + "  " + tree_text(graph, tree) +
            "\n    " + tree.why + "\n";
  }
  return text;
}

}  // namespace treering::topo_view
