// Our JSON: the graph as it is. Nodes come before their children, links name nodes by index.
// Fields without a value are left out.
#include <cmath>
#include <nlohmann/json.hpp>

#include "topo/check.hpp"
#include "topo/names.hpp"
#include "topo/read.hpp"
#include "topo/write.hpp"

namespace treering::topo {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "treering-topology";
constexpr int kVersion = 1;

Json json_of(const Node& node) {
  Json out = {{"kind", node_kind_name(node.kind)}, {"name", node.name}};
  const auto add = [&](const char* key, const auto& value, bool known) {
    if (known) out[key] = value;
  };
  add("parent", node.parent, node.parent != kNone);
  add("uplink", node.uplink, node.uplink != kNone);
  add("number", node.number, node.number != kNone);
  add("bus_id", node.bus_id, !node.bus_id.empty());
  add("pci_class", node.pci_class, node.pci_class != 0);
  add("vendor", node.vendor, node.vendor != 0);
  add("device", node.device, node.device != 0);
  add("cpus", node.cpus.to_list(), !node.cpus.empty());
  add("sm", node.sm, node.sm != 0);
  add("gcn", node.gcn, node.gcn != 0);
  add("part", node.part, node.part != kNone);
  add("gpu_direct", node.gpu_direct, node.gpu_direct);
  add("port_gbit_s", node.port_gbit_s, node.port_gbit_s != 0);
  add("usable", node.usable, !node.usable);
  add("distance_us", node.distance_us, node.distance_us != 0);
  add("cache_bytes", node.cache_bytes, node.cache_bytes != 0);
  add("cache_level", node.cache_level, node.cache_level != 0);
  add("cpu_vendor", node.cpu_vendor, !node.cpu_vendor.empty());
  add("cpu_arch", node.cpu_arch, !node.cpu_arch.empty());
  add("cpu_family", node.cpu_family, node.cpu_family != 0);
  add("cpu_model", node.cpu_model, node.cpu_model != 0);
  return out;
}

Json json_of(const Link& link) {
  Json out = {{"a", link.a}, {"b", link.b}, {"kind", link_kind_name(link.kind)}};
  if (link.width != 0) out["width"] = link.width;
  if (link.lane_gt_s != 0) out["lane_gt_s"] = link.lane_gt_s;
  out["a_to_b_gb_s"] = link.a_to_b_gb_s;
  out["b_to_a_gb_s"] = link.b_to_a_gb_s;
  out["source"] = source_name(link.source);
  return out;
}

// Fields of an object, checked: the first one that is missing or of another type is remembered.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("an object is needed");
  }

  void read(const char* key, std::string& out) {
    if (const Json* field = find(key)) {
      if (field->is_string())
        out = field->get<std::string>();
      else
        fail(std::string(key) + " must be a text");
    }
  }
  void read(const char* key, bool& out) {
    if (const Json* field = find(key)) {
      if (field->is_boolean())
        out = field->get<bool>();
      else
        fail(std::string(key) + " must be true or false");
    }
  }
  template <class Number>
  void read(const char* key, Number& out, double least, double most) {
    const Json* field = find(key);
    if (field == nullptr) return;
    const double value = field->is_number() ? field->get<double>() : NAN;
    if (value >= least && value <= most)
      out = static_cast<Number>(value);
    else
      fail(std::string(key) + " must be a number from " + std::to_string(least) + " to " +
           std::to_string(most));
  }
  template <class Enum>
  void read(const char* key, Enum& out, const char* (*name_of)(Enum), Enum last) {
    std::string name;
    read(key, name);
    if (const auto value = enum_of(name, name_of, last))
      out = *value;
    else
      fail("'" + name.substr(0, 40) + "' is no " + key + " that is known here");
  }
  void fail(const std::string& what) {
    if (status_.ok()) status_ = invalid_argument(where_ + ": " + what);
  }
  const Status& status() const { return status_; }

 private:
  const Json* find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(key);
    return it == object_.end() ? nullptr : &*it;
  }

  const Json& object_;
  std::string where_;
  Status status_;
};

constexpr double kMost = 2e9;  // of any number that counts or numbers something

Status read_node(const Json& json, std::size_t index, Node& node) {
  Fields fields(json, "node " + std::to_string(index));
  fields.read("kind", node.kind, &node_kind_name, NodeKind::kGroup);
  fields.read("name", node.name);
  // Parents come first, so that there is no circle.
  fields.read("parent", node.parent, 0, static_cast<double>(index) - 1);
  if (index > 0 && node.parent == kNone) fields.fail("only the first node has no parent");
  fields.read("number", node.number, kNone, kMost);
  fields.read("bus_id", node.bus_id);
  fields.read("pci_class", node.pci_class, 0, 0xffffffff);
  fields.read("vendor", node.vendor, 0, 0xffffffff);
  fields.read("device", node.device, 0, 0xffffffff);
  fields.read("sm", node.sm, 0, kMost);
  fields.read("gcn", node.gcn, 0, kMost);
  fields.read("part", node.part, 0, kMost);
  fields.read("gpu_direct", node.gpu_direct);
  fields.read("port_gbit_s", node.port_gbit_s, 0, kMost);
  fields.read("usable", node.usable);
  fields.read("distance_us", node.distance_us, 0, kMost);
  fields.read("cache_bytes", node.cache_bytes, 0, 1e15);
  fields.read("cache_level", node.cache_level, 0, 9);
  fields.read("cpu_vendor", node.cpu_vendor);
  fields.read("cpu_arch", node.cpu_arch);
  fields.read("cpu_family", node.cpu_family, 0, kMost);
  fields.read("cpu_model", node.cpu_model, 0, kMost);
  std::string cpus;
  fields.read("cpus", cpus);
  if (const auto set = CpuSet::from_list(cpus))
    node.cpus = *set;
  else
    fields.fail("'" + cpus.substr(0, 40) + "' is no list of CPUs");
  return fields.status();
}

Status read_link(const Json& json, std::size_t index, std::size_t nodes, Link& link) {
  Fields fields(json, "link " + std::to_string(index));
  const double last = static_cast<double>(nodes) - 1;
  fields.read("a", link.a, 0, last);
  fields.read("b", link.b, 0, last);
  if (link.a == kNone || link.b == kNone || link.a == link.b) fields.fail("two ends are needed");
  fields.read("kind", link.kind, &link_kind_name, LinkKind::kNetwork);
  fields.read("width", link.width, 0, kMost);
  fields.read("lane_gt_s", link.lane_gt_s, 0, kMost);
  fields.read("a_to_b_gb_s", link.a_to_b_gb_s, 0, kMost);
  fields.read("b_to_a_gb_s", link.b_to_a_gb_s, 0, kMost);
  fields.read("source", link.source, &source_name, Source::kMeasured);
  // Left out: to be filled in.
  if (link.a_to_b_gb_s <= 0 || link.b_to_a_gb_s <= 0) link.source = Source::kUnknown;
  return fields.status();
}

// What other JSON this may be.
std::string kind_of(const Json& json) {
  if (json.contains("node_invbws_list") || json.contains("remote_alpha")) {
    return "costs of links for TACCL (alpha and beta by message size); it names no machine";
  }
  if (json.contains("nvlink_count")) {
    return "matrices of link counts of several machines; it has no PCI, CPUs or NICs, and does "
           "not say which machine is meant";
  }
  return "JSON of another kind: it lacks \"format\": \"" + std::string(kFormat) + "\"";
}

const Json* array_of(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_array() ? &*it : nullptr;
}

Status read_uplinks(const Json& nodes, Graph& graph) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    Fields fields(nodes[i], "node " + std::to_string(i));
    fields.read("uplink", node.uplink, 0, static_cast<double>(graph.links.size()) - 1);
    const bool needs_one = node.kind >= NodeKind::kHostBridge && node.kind <= NodeKind::kNic;
    if (needs_one && node.uplink == kNone) fields.fail("a device needs an uplink");
    if (node.uplink != kNone) {
      const Link& link = graph.link(node.uplink);
      if (link.a != static_cast<NodeId>(i) || link.b != node.parent) {
        fields.fail("its uplink does not lead to its parent");
      }
    }
    TR_RETURN_IF_ERROR(fields.status());
  }
  return Status();
}

Status read_pairs_and_findings(const Json& json, Graph& graph) {
  const double last = static_cast<double>(graph.nodes.size()) - 1;
  if (const Json* pairs = array_of(json, "pairs")) {
    for (const Json& pair : *pairs) {
      StatedPair stated;
      Fields fields(pair, "a pair");
      fields.read("a", stated.a, 0, last);
      fields.read("b", stated.b, 0, last);
      fields.read("path", stated.path, &path_class_name, PathClass::kNoPath);
      if (stated.a == kNone || stated.b == kNone) fields.fail("two ends are needed");
      TR_RETURN_IF_ERROR(fields.status());
      graph.stated.push_back(stated);
    }
  }
  if (const Json* findings = array_of(json, "findings")) {
    for (const Json& it : *findings) {
      Finding finding{FindingKind::kUnknownPart, ""};
      Fields fields(it, "a finding");
      fields.read("kind", finding.kind, &finding_name, FindingKind::kUnknownPart);
      fields.read("text", finding.text);
      TR_RETURN_IF_ERROR(fields.status());
      graph.findings.push_back(std::move(finding));
    }
  }
  return Status();
}

Result<Graph> graph_of(const Json& json, const std::string& name) {
  Graph graph;
  graph.name = name;
  graph.format = "Treering's JSON";
  const Json* nodes = array_of(json, "nodes");
  const Json* links = array_of(json, "links");
  if (nodes == nullptr || links == nullptr || nodes->empty()) {
    return invalid_argument("it has no nodes and links");
  }
  constexpr int kMaxDepth = 128;
  std::vector<int> depth;
  for (std::size_t i = 0; i < nodes->size(); ++i) {
    Node node;
    TR_RETURN_IF_ERROR(read_node((*nodes)[i], i, node));
    depth.push_back(i == 0 ? 0 : depth[static_cast<std::size_t>(node.parent)] + 1);
    if (depth.back() > kMaxDepth) return invalid_argument("its nodes are nested too deeply");
    graph.nodes.push_back(std::move(node));
  }
  for (std::size_t i = 0; i < links->size(); ++i) {
    Link link;
    TR_RETURN_IF_ERROR(read_link((*links)[i], i, nodes->size(), link));
    graph.links.push_back(link);
  }
  TR_RETURN_IF_ERROR(read_uplinks(*nodes, graph));
  TR_RETURN_IF_ERROR(read_pairs_and_findings(json, graph));
  // Findings were written with the graph; only bandwidth that was left out is filled in.
  fill_bandwidth(graph);
  return graph;
}

}  // namespace

std::string to_json(const Graph& graph) {
  Json out = {{"format", kFormat},
              {"version", kVersion},
              {"name", graph.name},
              {"described_by", graph.format}};
  out["nodes"] = Json::array();
  for (const Node& node : graph.nodes) out["nodes"].push_back(json_of(node));
  out["links"] = Json::array();
  for (const Link& link : graph.links) out["links"].push_back(json_of(link));
  if (!graph.stated.empty()) {
    out["pairs"] = Json::array();
    for (const StatedPair& pair : graph.stated) {
      out["pairs"].push_back({{"a", pair.a}, {"b", pair.b}, {"path", path_class_name(pair.path)}});
    }
  }
  if (!graph.distances.cpus.empty()) {
    out["core_distances"] = {{"cpus", graph.distances.cpus}, {"round_trip_ns", graph.distances.ns}};
  }
  out["findings"] = Json::array();
  for (const Finding& finding : graph.findings) {
    out["findings"].push_back({{"kind", finding_name(finding.kind)},
                               {"severity", severity_name(severity_of(finding.kind))},
                               {"text", finding.text}});
  }
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Graph> read_json(std::string_view text, const std::string& name) {
  int depth = 0;
  // The parser recurses while it frees; nothing of ours is nested deeper than 4.
  const Json json = Json::parse(
      text.begin(), text.end(),
      [&](int level, Json::parse_event_t, Json&) {
        depth = std::max(depth, level);
        return level < 32;
      },
      false);
  if (json.is_discarded() || depth >= 32) {
    return invalid_argument(name + " is no complete JSON; is it cut off?");
  }
  const auto format = json.find("format");
  if (!json.is_object() || format == json.end() || *format != kFormat) {
    return invalid_argument(name + " is " + kind_of(json));
  }
  if (json.value("version", Json()) != kVersion) {
    return unsupported(name + " is of a version of the format that this build does not know");
  }
  Result<Graph> graph = graph_of(json, name);
  if (!graph.ok()) return graph.status().with_context(name);
  return graph;
}

}  // namespace treering::topo
