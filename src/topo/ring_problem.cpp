#include "topo/ring_problem.hpp"

#include <algorithm>
#include <map>

#include "topo/text.hpp"

namespace treering::topo {
namespace {

class Builder {
 public:
  Builder(const Graph& graph, RingProblem& problem)
      : graph_(graph), paths_(graph), problem_(problem) {}

  void add_members() {
    const int members = static_cast<int>(problem_.members.size());
    for (int a = 0; a < members; ++a) {
      for (int b = a + 1; b < members; ++b) {
        const Path path = paths_.best(member(a), member(b));
        if (path.hops.empty()) continue;
        if (problem_.direct_only && path.path != PathClass::kNvlink) continue;
        add(a, b, {resources_of(path), path.path, kNone});
      }
    }
  }

  void add_outside() {
    const int outside = problem_.vertices() - 1;
    for (int a = 0; a < outside; ++a) {
      const NodeId machine = graph_.ancestor(member(a), NodeKind::kMachine);
      for (NodeId nic : graph_.all(NodeKind::kNic)) {
        if (!graph_.at(nic).usable || graph_.at(nic).port_gbit_s <= 0) continue;
        if (graph_.ancestor(nic, NodeKind::kMachine) != machine) continue;
        const Path path = paths_.best(member(a), nic);
        if (path.hops.empty()) continue;
        Route route{resources_of(path), path.path, nic};
        route.resources.push_back(index_of({kNone, nic}));
        add(a, outside, std::move(route));
      }
    }
  }

 private:
  NodeId member(int vertex) const { return problem_.members[static_cast<std::size_t>(vertex)]; }

  void add(int a, int b, Route route) {
    const auto n = static_cast<std::size_t>(problem_.vertices());
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    problem_.routes[j * n + i].push_back(route);
    problem_.routes[i * n + j].push_back(std::move(route));
  }

  std::vector<int> resources_of(const Path& path) {
    std::vector<int> out;
    for (const Hop& hop : path.hops) out.push_back(index_of({hop.link, kNone}));
    return out;
  }

  int index_of(const Resource& resource) {
    const auto [it, added] = index_.try_emplace({resource.link, resource.port},
                                                static_cast<int>(problem_.resources.size()));
    if (added) {
      problem_.resources.push_back(resource);
      problem_.capacity.push_back(capacity_of(graph_, resource));
    }
    return it->second;
  }

  const Graph& graph_;
  const Paths paths_;
  RingProblem& problem_;
  std::map<std::pair<LinkId, NodeId>, int> index_;
};

}  // namespace

double capacity_of(const Graph& graph, const Resource& resource) {
  if (resource.port != kNone) return graph.at(resource.port).port_gbit_s / 8;
  const Link& link = graph.link(resource.link);
  return std::min(link.a_to_b_gb_s, link.b_to_a_gb_s);
}

std::string resource_name(const Graph& graph, const Resource& resource) {
  if (resource.port != kNone) return "port of " + graph.at(resource.port).name;
  if (resource.link == kNone) return "nothing";
  const Link& link = graph.link(resource.link);
  std::string name =
      graph.at(link.a).name + " - " + graph.at(link.b).name + ", " + link_kind_name(link.kind);
  const bool counts = link.kind == LinkKind::kNvlink || link.kind == LinkKind::kXgmi;
  if (counts && link.width > 0) name += " x" + std::to_string(link.width);
  return name;
}

int crossing_cost(PathClass path) {
  switch (path) {
    case PathClass::kSelf:
    case PathClass::kNvlink:
      return 0;
    case PathClass::kC2c:
    case PathClass::kPix:
      return 1;
    case PathClass::kPxb:
      return 2;
    case PathClass::kPhb:
      return 4;
    case PathClass::kNode:
      return 5;
    default:
      return 8;
  }
}

RingProblem make_ring_problem(const Graph& graph, const std::vector<NodeId>& members,
                              bool has_outside, bool direct_only) {
  RingProblem problem;
  problem.members = members;
  problem.has_outside = has_outside;
  problem.direct_only = direct_only;
  const auto n = static_cast<std::size_t>(problem.vertices());
  problem.routes.resize(n * n);
  Builder builder(graph, problem);
  builder.add_members();
  if (has_outside) builder.add_outside();
  return problem;
}

int Circle::crossing() const {
  int sum = 0;
  for (const Route* route : routes) sum += crossing_cost(route->path);
  return sum;
}

std::vector<int> Circle::crossings(std::size_t resources) const {
  std::vector<int> count(resources, 0);
  for (const Route* route : routes) {
    for (int resource : route->resources) ++count[static_cast<std::size_t>(resource)];
  }
  return count;
}

std::vector<double> loads_of(const RingProblem& problem, const std::vector<Circle>& circles,
                             const std::vector<double>& gb_s) {
  std::vector<double> loads(problem.resources.size(), 0);
  for (std::size_t i = 0; i < circles.size(); ++i) {
    for (const Route* route : circles[i].routes) {
      for (int resource : route->resources) {
        loads[static_cast<std::size_t>(resource)] += gb_s[i] / 2;
      }
    }
  }
  return loads;
}

}  // namespace treering::topo
