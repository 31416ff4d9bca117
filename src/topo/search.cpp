// From the graph to the problem, and from its solution to rings with words.
#include "topo/search.hpp"

#include <algorithm>
#include <map>

#include "topo/ring_search.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

constexpr double kFull = 1 - 1e-6;  // of a capacity

std::vector<NodeId> gpus_in_order(const Graph& graph) {
  std::vector<NodeId> gpus = graph.all(NodeKind::kGpu);
  std::stable_sort(gpus.begin(), gpus.end(),
                   [&](NodeId a, NodeId b) { return graph.at(a).number < graph.at(b).number; });
  return gpus;
}

class Planner {
 public:
  Planner(const Graph& graph, const RingProblem& problem, const RingSolution& solution)
      : graph_(graph), problem_(problem), solution_(solution) {}

  RingPlan plan() {
    RingPlan plan;
    plan.members = problem_.members;
    plan.direct_only = problem_.direct_only;
    plan.bound_gb_s = solution_.bound_gb_s;
    plan.steps = solution_.steps;
    for (std::size_t i = 0; i < solution_.prices.size(); ++i) {
      if (solution_.prices[i] > 1e-12) {
        plan.prices.push_back({problem_.resources[i], solution_.prices[i]});
      }
    }
    loads_ = loads_of(problem_, solution_.circles, solution_.gb_s);
    for (std::size_t i = 0; i < solution_.circles.size(); ++i) add_pair(plan, i);
    for (const Ring& ring : plan.rings) plan.gb_s += ring.gb_s;
    return plan;
  }

 private:
  void add_pair(RingPlan& plan, std::size_t i) const {
    Circle circle = solution_.circles[i];
    Ring ring;
    if (problem_.has_outside) turn_outside_last(circle);
    const std::size_t members = circle.vertices.size() - (problem_.has_outside ? 1 : 0);
    for (std::size_t v = 0; v < members; ++v) {
      ring.order.push_back(problem_.members[static_cast<std::size_t>(circle.vertices[v])]);
    }
    if (problem_.has_outside) {
      ring.nic_out = circle.routes[members - 1]->nic;
      ring.nic_in = circle.routes[members]->nic;
    }
    ring.limit = limit_of(circle);
    ring.why = why(circle, ring);
    // The reverse of two vertices is the same ring.
    const bool two_ways = circle.vertices.size() > 2;
    ring.gb_s = solution_.gb_s[i] / (two_ways ? 2 : 1);
    plan.rings.push_back(ring);
    if (!two_ways) return;
    std::reverse(ring.order.begin(), ring.order.end());
    // Alone, a ring starts where its pair does.
    if (!problem_.has_outside)
      std::rotate(ring.order.begin(), ring.order.end() - 1, ring.order.end());
    std::swap(ring.nic_in, ring.nic_out);
    plan.rings.push_back(std::move(ring));
  }

  void turn_outside_last(Circle& circle) const {
    const int outside = problem_.vertices() - 1;
    const auto at = std::find(circle.vertices.begin(), circle.vertices.end(), outside);
    const auto shift = at + 1 - circle.vertices.begin();
    std::rotate(circle.vertices.begin(), circle.vertices.begin() + shift, circle.vertices.end());
    std::rotate(circle.routes.begin(), circle.routes.begin() + shift, circle.routes.end());
  }

  // Of what is full on its way: the one that matters most, which is the dearest.
  Resource limit_of(const Circle& circle) const {
    int best = kNone;
    for (const Route* route : circle.routes) {
      for (int i : route->resources) {
        if (best == kNone || rank(i) > rank(best)) best = i;
      }
    }
    return best == kNone ? Resource() : problem_.resources[static_cast<std::size_t>(best)];
  }

  std::pair<double, double> rank(int i) const {
    const auto at = static_cast<std::size_t>(i);
    const double share = loads_[at] / problem_.capacity[at];
    const double price = at < solution_.prices.size() ? solution_.prices[at] : 0;
    return share >= kFull ? std::pair(1 + price, 0.0) : std::pair(0.0, share);
  }

  // "6 NV, 2 SYS (GPU3 - GPU4, GPU0 - GPU7); full: ..."
  std::string why(const Circle& circle, const Ring& ring) const {
    std::map<PathClass, int> classes;
    std::string far;
    int far_ones = 0;
    for (std::size_t i = 0; i < circle.routes.size(); ++i) {
      const Route& route = *circle.routes[i];
      if (route.nic != kNone) continue;
      ++classes[route.path];
      if (route.path < PathClass::kPhb || ++far_ones > 4) continue;
      far += (far.empty() ? "" : ", ") + name(circle.vertices[i]) + " - " +
             name(circle.vertices[(i + 1) % circle.vertices.size()]);
    }
    if (far_ones > 4) far += " and " + std::to_string(far_ones - 4) + " more";
    std::string text;
    for (const auto& [path, count] : classes) {
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + path_class_name(path);
    }
    if (!far.empty()) text += " (" + far + ")";
    if (ring.nic_in != kNone) {
      const std::size_t members = ring.order.size();
      text += (text.empty() ? "" : ", ") + std::string("NICs ") +
              path_class_name(circle.routes[members]->path) + " and " +
              path_class_name(circle.routes[members - 1]->path);
    }
    return text + "; full: " + resource_name(graph_, ring.limit) + ", " +
           format_gb_s(capacity_of(graph_, ring.limit)) + " GB/s";
  }

  std::string name(int vertex) const {
    return graph_.at(problem_.members[static_cast<std::size_t>(vertex)]).name;
  }

  const Graph& graph_;
  const RingProblem& problem_;
  const RingSolution& solution_;
  std::vector<double> loads_;
};

std::string routes_reason(const Graph& graph, const RingProblem& problem, bool any_direct) {
  const std::string gpus = std::to_string(problem.members.size()) + " GPUs";
  if (problem.members.size() < 2) return "one GPU: data only passes through it";
  if (problem.direct_only) {
    return "NVLink or xGMI alone closes rings of all " + gpus +
           ", so PCIe is left to NICs and hosts";
  }
  if (!any_direct) return "no NVLink or xGMI between the " + gpus + ": rings go over PCIe";
  return std::string("no ring of all ") + gpus + " exists on NVLink or xGMI alone" +
         (graph.has(FindingKind::kIslands) ? " (islands)" : "") + ": the rest goes over PCIe";
}

void explain(RingPlan& plan, const RingSolution& solution) {
  if (solution.cut_short) {
    plan.reasons.push_back(
        "the steps allowed, or tours too long to be looked through, ended the "
        "search: there may be better rings");
  }
  if (plan.bound_gb_s > 0) {
    plan.reasons.push_back("no rings carry more than " + format_gb_s(plan.bound_gb_s) +
                           " GB/s together: that is what the links allow that every ring needs (" +
                           std::to_string(plan.prices.size()) + ")");
  }
  if (solution.circles.size() > 1) {
    plan.reasons.push_back(solution.even
                               ? "all rings are equally fast"
                               : "rings differ in speed: equal ones would carry less in all");
  }
}

Result<RingPlan> rings_of_cluster(const Graph& graph, const SearchOptions& options) {
  const std::vector<NodeId> machines = graph.all(NodeKind::kMachine);
  if (options.machines > 1) {
    return invalid_argument(graph.name +
                            " describes several machines already: their number "
                            "cannot be given");
  }
  const ClusterRings rings = solve_cluster(graph, machines, options);
  if (!rings.joined) {
    return invalid_argument(graph.name +
                            " has machines that no network or NVLink joins: there is "
                            "no ring");
  }
  RingPlan plan = Planner(graph, rings.problem, rings.solution).plan();
  plan.reasons = rings.reasons;
  plan.group_sizes = rings.group_sizes;
  const std::size_t rings_a_pair = plan.rings.size() / rings.rails.size();
  for (std::size_t i = 0; i < plan.rings.size(); ++i) {
    plan.rings[i].rail = rings.rails[i / rings_a_pair];
  }
  explain(plan, rings.solution);
  return plan;
}

}  // namespace

Result<RingPlan> find_rings(const Graph& graph, const SearchOptions& options) {
  const std::vector<NodeId> gpus = gpus_in_order(graph);
  const bool cluster = !graph.nodes.empty() && graph.at(0).kind == NodeKind::kCluster;
  if (gpus.empty() && cluster && graph.all(NodeKind::kMachine).size() > 1) {
    return rings_of_cluster(graph, options);
  }
  const bool outside = options.machines > 1;
  if (gpus.size() + (outside ? 1 : 0) < 2) {
    return invalid_argument(graph.name + " has " + (gpus.empty() ? "no GPUs" : "one GPU") +
                            ": a ring needs two members at least");
  }
  constexpr std::size_t kMost = 64;
  if (gpus.size() > kMost) {
    return unsupported("rings of more than " + std::to_string(kMost) + " GPUs of one machine; " +
                       graph.name + " has " + std::to_string(gpus.size()));
  }
  std::int64_t steps = 0;
  RingProblem problem = make_ring_problem(graph, gpus, outside, true);
  if (!has_circle(problem, steps)) problem = make_ring_problem(graph, gpus, outside, false);
  if (!has_circle(problem, steps)) {
    return invalid_argument(graph.name +
                            (outside ? " has no NIC that its GPUs reach, or GPUs" : " has GPUs") +
                            " that no path joins: there is no ring");
  }
  RingSolution solution = solve_rings(problem, options);
  solution.steps += steps;
  RingPlan plan = Planner(graph, problem, solution).plan();
  const bool any_direct = std::any_of(graph.links.begin(), graph.links.end(), [](const Link& it) {
    return it.kind == LinkKind::kNvlink || it.kind == LinkKind::kXgmi;
  });
  plan.reasons.push_back(routes_reason(graph, problem, any_direct));
  if (outside) {
    plan.reasons.push_back(
        std::string(
            "every second machine runs its chains backwards, so that rings stay on a rail") +
        (options.machines % 2 == 1 ? "; with an odd number of machines each changes its rail once"
                                   : ""));
  }
  explain(plan, solution);
  return plan;
}

}  // namespace treering::topo
