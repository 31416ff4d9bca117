// A graph as a page: the tree from left to right, the links between GPUs as arcs on the right, the
// matrix of pairs, findings. No script: everything is drawn here.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/topo/html_text.hpp"
#include "cli/topo/style.hpp"
#include "cli/topo/view.hpp"
#include "topo/text.hpp"

namespace treering::topo_view {
namespace {

using namespace topo;

constexpr std::size_t kMostLeaves = 400;
constexpr std::size_t kMostPageColumns = 40;
constexpr double kBoxWidth = 194, kBoxHeight = 36, kColumn = 222, kRow = 46, kMargin = 14;

const char* style_of(const Node& node) {
  switch (node.kind) {
    case NodeKind::kGpu:
      return "gpu";
    case NodeKind::kNic:
      return node.usable ? "nic" : "unused";
    case NodeKind::kNuma:
    case NodeKind::kPackage:
      return "numa";
    case NodeKind::kCache:
    case NodeKind::kCore:
      return "cpu";
    case NodeKind::kPciSwitch:
    case NodeKind::kNetSwitch:
      return "switch";
    default:
      return "plain";
  }
}

// Thicker for wider links: 1 pixel at 1 GB/s, 2 more for each factor of ten.
double thickness(double gb_s) {
  return std::clamp(1 + 2 * std::log10(std::max(gb_s, 1.0)), 1.0, 8.0);
}

class Drawing {
 public:
  explicit Drawing(const Graph& graph)
      : graph_(graph),
        children_(graph.nodes.size()),
        x_(graph.nodes.size(), -1),
        y_(graph.nodes.size(), -1) {
    for (NodeId id = 1; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
      const NodeKind kind = graph.at(id).kind;
      if (kind == NodeKind::kCore || kind == NodeKind::kNvSwitch) continue;
      children_[static_cast<std::size_t>(graph.at(id).parent)].push_back(id);
    }
  }

  std::size_t leaves() const {
    std::size_t count = 0;
    for (const auto& below : children_) count += below.empty();
    return count;
  }

  std::string draw() {
    place(0, 0);
    align_devices();
    tree(0);
    arcs();
    const double width = right_ + kMargin, height = kMargin * 2 + rows_ * kRow;
    return "<svg viewBox=\"0 0 " + number(width) + " " + number(height) + "\" width=\"" +
           number(width) + "\" height=\"" + number(height) +
           "\" role=\"img\" aria-label=\"The tree of devices and the links between GPUs\">" +
           edges_ + arcs_ + boxes_ + "</svg>";
  }

 private:
  double& x(NodeId id) { return x_[static_cast<std::size_t>(id)]; }
  double& y(NodeId id) { return y_[static_cast<std::size_t>(id)]; }
  const std::vector<NodeId>& below(NodeId id) const {
    return children_[static_cast<std::size_t>(id)];
  }

  // Leaves one below the other; a parent in the middle of its children.
  void place(NodeId id, int depth) {
    x(id) = kMargin + depth * kColumn;
    right_ = std::max(right_, x(id) + kBoxWidth);
    if (below(id).empty()) {
      y(id) = kMargin + rows_++ * kRow;
      return;
    }
    for (NodeId child : below(id)) place(child, depth + 1);
    y(id) = (y(below(id).front()) + y(below(id).back())) / 2;
  }

  // GPUs and NICs stand in the last column, so that no arc crosses a box.
  void align_devices() {
    double last = 0;
    for (NodeKind kind : {NodeKind::kGpu, NodeKind::kNic}) {
      for (NodeId id : graph_.all(kind)) last = std::max(last, x(id));
    }
    for (NodeKind kind : {NodeKind::kGpu, NodeKind::kNic}) {
      for (NodeId id : graph_.all(kind)) x(id) = last;
    }
  }

  void tree(NodeId id) {
    box(id);
    for (NodeId child : below(id)) {
      const double x1 = x(id) + kBoxWidth, x2 = x(child), middle = (x1 + x2) / 2;
      const double y1 = y(id) + kBoxHeight / 2, y2 = y(child) + kBoxHeight / 2;
      const LinkId up = graph_.at(child).uplink;
      const bool limits = up != kNone && graph_.link(up).kind != LinkKind::kHost &&
                          graph_.link(up).kind != LinkKind::kBoard;
      const double width = limits ? thickness(graph_.link(up).a_to_b_gb_s) : 1;
      edges_ +=
          "<path class=\"edge" +
          std::string(limits && graph_.link(up).source == Source::kAssumed ? " assumed" : "") +
          "\" stroke-width=\"" + number(width) + "\" d=\"M" + number(x1) + " " + number(y1) + "C" +
          number(middle) + " " + number(y1) + " " + number(middle) + " " + number(y2) + " " +
          number(x2) + " " + number(y2) + "\"/>";
      tree(child);
    }
  }

  void box(NodeId id) {
    const Node& node = graph_.at(id);
    std::string what = describe_node(graph_, id);
    std::size_t cores = 0;
    for (NodeId core : graph_.all(NodeKind::kCore)) cores += graph_.at(core).parent == id;
    if (cores > 0) what += (what.empty() ? "" : ", ") + in_words(cores, "core");
    boxes_ += "<g class=\"" + std::string(style_of(node)) + "\"><title>" +
              escaped(node.name + (what.empty() ? "" : "\n" + what)) + "</title><rect x=\"" +
              number(x(id)) + "\" y=\"" + number(y(id)) + "\" width=\"" + number(kBoxWidth) +
              "\" height=\"" + number(kBoxHeight) + "\" rx=\"7\"/>";
    const double line = what.empty() ? 23 : 15;
    boxes_ += "<text class=\"name\" x=\"" + number(x(id) + 9) + "\" y=\"" + number(y(id) + line) +
              "\">" + escaped(shortened(node.name, 23)) + "</text>";
    // Speeds are what one looks for: the end of the list of facts.
    const std::string facts = node.uplink == kNone ? what : describe_link(graph_.link(node.uplink));
    const std::string detail = facts.empty() ? what : facts;
    if (!what.empty()) {
      boxes_ += "<text class=\"detail\" x=\"" + number(x(id) + 9) + "\" y=\"" + number(y(id) + 29) +
                "\">" + escaped(shortened(detail, 29)) + "</text>";
    }
    boxes_ += "</g>";
  }

  // Links between GPUs bulge to the right, farther for farther ends; those to an NVSwitch meet at a
  // bar.
  void arcs() {
    double leaf_right = 0;
    for (NodeId gpu : graph_.all(NodeKind::kGpu))
      leaf_right = std::max(leaf_right, x(gpu) + kBoxWidth);
    if (graph_.all(NodeKind::kGpu).empty()) leaf_right = right_;
    double widest = right_;
    for (const Link& link : graph_.links) {
      const bool gpu_link = link.kind == LinkKind::kNvlink || link.kind == LinkKind::kXgmi;
      if (!gpu_link || x(link.a) < 0 || x(link.b) < 0) continue;
      const double x1 = x(link.a) + kBoxWidth, x2 = x(link.b) + kBoxWidth;
      const double y1 = y(link.a) + kBoxHeight / 2, y2 = y(link.b) + kBoxHeight / 2;
      const double bulge = std::max(x1, x2) + 24 + std::abs(y2 - y1) * 0.35;
      arcs_ += "<path class=\"arc\" stroke-width=\"" + number(thickness(link.a_to_b_gb_s) * 0.7) +
               "\" d=\"M" + number(x1) + " " + number(y1) + "C" + number(bulge) + " " + number(y1) +
               " " + number(bulge) + " " + number(y2) + " " + number(x2) + " " + number(y2) +
               "\"><title>" + link_title(link) + "</title></path>";
      widest = std::max(widest, bulge - (bulge - std::max(x1, x2)) * 0.25 + 6);
    }
    right_ = widest;
    for (NodeId nvswitch : graph_.all(NodeKind::kNvSwitch)) bar(nvswitch);
  }

  void bar(NodeId nvswitch) {
    double top = 1e9, bottom = -1, from = 0;
    std::vector<const Link*> links;
    for (const Link& link : graph_.links) {
      if (link.b != nvswitch || x(link.a) < 0) continue;
      links.push_back(&link);
      top = std::min(top, y(link.a));
      bottom = std::max(bottom, y(link.a) + kBoxHeight);
      from = std::max(from, x(link.a) + kBoxWidth);
    }
    if (links.empty()) return;
    const double at = std::max(right_, from) + 70;
    for (const Link* link : links) {
      const double line = y(link->a) + kBoxHeight / 2;
      arcs_ += "<path class=\"arc\" stroke-width=\"" + number(thickness(link->a_to_b_gb_s) * 0.7) +
               "\" d=\"M" + number(x(link->a) + kBoxWidth) + " " + number(line) + "H" + number(at) +
               "\"><title>" + link_title(*link) + "</title></path>";
    }
    const std::string middle = number((top + bottom) / 2);
    boxes_ += "<g class=\"switch\"><rect x=\"" + number(at) + "\" y=\"" + number(top) +
              "\" width=\"34\" height=\"" + number(bottom - top) +
              "\" rx=\"7\"/><text class=\"name\" text-anchor=\"middle\" transform=\"translate(" +
              number(at + 21) + " " + middle + ") rotate(-90)\">" +
              escaped(graph_.at(nvswitch).name) + "</text></g>";
    // Domains of machines stand one below the other, so they may share the column.
    bars_right_ = std::max(bars_right_, at + 34);
    if (graph_.at(nvswitch).parent != 0 || graph_.all(NodeKind::kNvSwitch).back() == nvswitch) {
      right_ = std::max(right_, bars_right_);
    }
  }

  std::string link_title(const Link& link) const {
    return escaped(graph_.at(link.a).name + " - " + graph_.at(link.b).name + ": " +
                   describe_link(link));
  }

  const Graph& graph_;
  std::vector<std::vector<NodeId>> children_;
  std::vector<double> x_, y_;
  int rows_ = 0;
  double right_ = 0, bars_right_ = 0;
  std::string edges_, arcs_, boxes_;
};

std::string matrix_section(const Graph& graph) {
  const std::vector<NodeId> ends = matrix_endpoints(graph, kMostPageColumns);
  if (ends.size() < 2) return "";
  std::string text =
      "<section><h2>Pairs</h2><p>The path, and GB/s in one direction if it is alone; "
      "italics rest on an assumption.</p><div class=\"wide\"><table><tr><td></td>";
  for (NodeId id : ends) text += "<th>" + escaped(graph.at(id).name) + "</th>";
  text += "</tr>";
  const Paths paths(graph);
  for (NodeId row : ends) {
    text += "<tr><th>" + escaped(graph.at(row).name) + "</th>";
    for (NodeId column : ends) {
      const Path path = paths.best(row, column);
      std::string style = path_class_name(path.path);
      if (style == "-") style = "none";
      if (path.source == Source::kAssumed) style += " guess";
      text += "<td class=\"" + style + "\">" + path_label(path);
      if (path.gb_s > 0) text += "<br>" + format_gb_s(path.gb_s);
      text += "</td>";
    }
    text += "</tr>";
  }
  return text + "</table></div></section>";
}

std::string findings_section(const Graph& graph) {
  std::string text = "<section><h2>Findings</h2>";
  if (graph.findings.empty()) return text + "<p>Nothing is missing or wrong.</p></section>";
  text += "<ul>";
  for (const Finding& finding : graph.findings) {
    const std::string severity = severity_name(severity_of(finding.kind));
    text += "<li><b class=\"" + severity + "\">" + severity + "</b><span><i>" +
            finding_name(finding.kind) + "</i> " + escaped(finding.text) + "</span></li>";
  }
  return text + "</ul></section>";
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string shortened(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 1) + "\xe2\x80\xa6";
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

Result<std::string> to_html(const Graph& graph, const SearchOptions& options) {
  Drawing drawing(graph);
  if (drawing.leaves() > kMostLeaves) {
    return unsupported("--html draws at most " + std::to_string(kMostLeaves) + " devices, and " +
                       graph.name + " has " + std::to_string(drawing.leaves()) +
                       "; use the text or --json");
  }
  std::string rings;
  // Without GPUs, or without a way between them, there are none; --rings says why.
  if (const Result<RingPlan> plan = find_rings(graph, options); plan.ok()) {
    rings = rings_section(graph, plan.value(), find_trees(graph, plan.value(), options));
  }
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Treering: " +
         escaped(graph.name) + "</title><style>" + kStyle + "</style></head><body><header><h1>" +
         escaped(graph.name) + "</h1><p>" + escaped(graph.format + "; " + summary(graph)) +
         "</p></header><section><h2>Tree and links</h2><p>Thicker lines carry more; dashed ones "
         "are "
         "assumed. Links between GPUs are on the right. Pointing at a box or line says more.</p>"
         "<div class=\"wide\">" +
         drawing.draw() + "</div></section>" + rings + matrix_section(graph) +
         findings_section(graph) + "</body></html>\n";
}

}  // namespace treering::topo_view
