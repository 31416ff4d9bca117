// Rings and trees on the page: each pair of rings as a circle of its members, lines in the order
// in which data goes round.
#include <cmath>
#include <numbers>

#include "cli/topo/html_text.hpp"
#include "cli/topo/view.hpp"
#include "topo/text.hpp"

namespace treering::topo_view {
namespace {

using namespace topo;

constexpr std::size_t kMostDrawn = 40;                       // members of a circle
constexpr double kWidth = 400, kHeight = 250, kRadius = 88;  // names need room at the sides

class CircleDrawing {
 public:
  CircleDrawing(const Graph& graph, const RingPlan& plan)
      : graph_(graph), paths_(graph), plan_(plan) {}

  std::string draw(const Ring& ring) const {
    std::string text = "<svg viewBox=\"0 0 " + number(kWidth) + " " + number(kHeight) +
                       "\" width=\"" + number(kWidth) + "\" height=\"" + number(kHeight) +
                       "\" role=\"img\" aria-label=\"" + escaped(ring_text(graph_, ring)) + "\">";
    const std::size_t n = ring.order.size();
    for (std::size_t i = 0; i < n; ++i) {
      if (i + 1 == n && ring.nic_in != kNone) break;  // leaves the machine
      text += line(ring.order[i], ring.order[(i + 1) % n]);
    }
    for (NodeId member : plan_.members) text += label(ring, member);
    return text + "</svg>";
  }

 private:
  // All circles have their members in the same places.
  std::pair<double, double> place(NodeId member, double radius) const {
    std::size_t at = 0;
    while (plan_.members[at] != member) ++at;
    const double angle =
        2 * std::numbers::pi * static_cast<double>(at) / static_cast<double>(plan_.members.size()) -
        std::numbers::pi / 2;
    return {kWidth / 2 + radius * std::cos(angle), kHeight / 2 + radius * std::sin(angle)};
  }

  std::string line(NodeId from, NodeId to) const {
    const auto [x1, y1] = place(from, kRadius);
    const auto [x2, y2] = place(to, kRadius);
    const Path path = paths_.best(from, to);
    const char* style = path.path == PathClass::kNvlink ? "ringway" : "ringway far";
    return "<path class=\"" + std::string(style) + "\" d=\"M" + number(x1) + " " + number(y1) +
           "L" + number(x2) + " " + number(y2) + "\"><title>" +
           escaped(graph_.at(from).name + " - " + graph_.at(to).name + ": " + pair_text(path)) +
           "</title></path>";
  }

  std::string label(const Ring& ring, NodeId member) const {
    const auto [x, y] = place(member, kRadius);
    const auto [tx, ty] = place(member, kRadius + 14);
    // Away from the circle.
    const bool middle = std::abs(tx - kWidth / 2) < 1;
    const char* anchor = middle ? "middle" : tx < kWidth / 2 ? "end" : "start";
    std::string name = graph_.at(member).name;
    if (ring.nic_in != kNone && ring.order.front() == member)
      name += " <- " + graph_.at(ring.nic_in).name;
    if (ring.nic_in != kNone && ring.order.back() == member)
      name += " -> " + graph_.at(ring.nic_out).name;
    return "<circle class=\"member\" cx=\"" + number(x) + "\" cy=\"" + number(y) +
           "\" r=\"5\"/><text class=\"detail\" text-anchor=\"" + anchor + "\" x=\"" + number(tx) +
           "\" y=\"" + number(ty + 4) + "\">" + escaped(shortened(name, 22)) + "</text>";
  }

  const Graph& graph_;
  const Paths paths_;
  const RingPlan& plan_;
};

std::string list_of(const std::vector<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) text += "<p>" + escaped(reason) + "</p>";
  return text;
}

std::string row(const std::string& name, double gb_s, const std::string& order,
                const std::string& why) {
  return "<tr><th>" + name + "</th><td>" + format_gb_s(gb_s) + "</td><td class=\"left\">" +
         escaped(order) + "</td><td class=\"left\">" + escaped(why) + "</td></tr>";
}

}  // namespace

std::string rings_section(const Graph& graph, const RingPlan& rings, const TreePlan& trees) {
  std::string text =
      "<section><h2>" + escaped(rings_title(rings)) + "</h2>" + list_of(rings.reasons);
  if (rings.members.size() <= kMostDrawn) {
    const CircleDrawing drawing(graph, rings);
    text +=
        "<p>One circle for both directions of a ring; dashed lines are no NVLinks.</p>"
        "<div class=\"circles\">";
    for (std::size_t i = 0; i < rings.rings.size(); i += 2) text += drawing.draw(rings.rings[i]);
    text += "</div>";
  }
  text += "<div class=\"wide\"><table><tr><td></td><th>GB/s</th><th>Order</th><th>Why</th></tr>";
  for (std::size_t i = 0; i < rings.rings.size(); ++i) {
    const Ring& ring = rings.rings[i];
    text += row("ring " + std::to_string(i), ring.gb_s, ring_text(graph, ring), ring.why);
  }
  text +=
      "</table></div></section><section><h2>" + escaped(trees_title(trees)) + "</h2>" +
      list_of(trees.reasons) +
      "<div class=\"wide\"><table><tr><td></td><th>GB/s</th><th>Root first</th><th>Why</th></tr>";
  for (std::size_t i = 0; i < trees.trees.size(); ++i) {
    const Tree& tree = trees.trees[i];
    text += row("tree " + std::to_string(i), tree.gb_s, tree_text(graph, tree), tree.why);
  }
  return text + "</table></div></section>";
}

}  // namespace treering::topo_view
