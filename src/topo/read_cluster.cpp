// topograph's cluster models (YAML): a tree of switches, blocks of nodes below them, and the NVLink
// domain (the rack) that a block is. Newer models name blocks `blocks` with a `switch` each; older
// ones list `capacity_blocks` that switches refer to.
#include <algorithm>
#include <map>
#include <set>

#include "topo/bandwidth.hpp"
#include "topo/check.hpp"
#include "topo/read.hpp"
#include "topo/text.hpp"
#include "topo/yaml.hpp"

namespace treering::topo {
namespace {

constexpr std::size_t kMaxMachines = 100'000;

// "node[1101-1118,1120]" -> node1101, ...; leading zeros are kept. False if it is malformed.
bool expand(const std::string& range, std::vector<std::string>& out) {
  const std::size_t open = range.find('[');
  if (open == std::string::npos) {
    out.push_back(range);
    return !range.empty();
  }
  const std::size_t close = range.find(']', open);
  if (close == std::string::npos) return false;
  const std::string head = range.substr(0, open), tail = range.substr(close + 1);
  std::string_view list = std::string_view(range).substr(open + 1, close - open - 1);
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    const std::string_view part = trim(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
    const std::size_t dash = std::min(part.find('-'), part.size());
    const std::string_view first_text = part.substr(0, dash);
    const auto first = parse_int(first_text);
    const auto last = dash == part.size() ? first : parse_int(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first) return false;
    for (long long i = *first; i <= *last; ++i) {
      if (out.size() >= kMaxMachines) return false;
      std::string number = std::to_string(i);
      if (number.size() < first_text.size())
        number.insert(0, first_text.size() - number.size(), '0');
      out.push_back(head + number + tail);
    }
  }
  return true;
}

struct Block {
  std::string name;   // for messages
  std::string above;  // switch
  std::string domain;
  std::vector<std::string> machines;
};

class ClusterReader {
 public:
  explicit ClusterReader(const std::string& name) {
    graph_.name = name;
    graph_.format = "cluster description (YAML)";
  }

  Result<Graph> read(const Yaml& root) {
    if (const Yaml* switches = root.find("switches")) read_switches(*switches);
    for (const char* key : {"blocks", "capacity_blocks"}) {
      if (const Yaml* blocks = root.find(key)) TR_RETURN_IF_ERROR(read_blocks(*blocks));
    }
    if (blocks_.empty()) {
      return invalid_argument(graph_.name + " has no blocks with nodes: no cluster is described");
    }
    graph_.add(NodeKind::kCluster, "cluster", kNone);
    cut_circles();
    for (const std::string& name : switches_) add_switch(name);
    for (const Block& block : blocks_) add_block(block);
    if (graph_.all(NodeKind::kMachine).empty()) {
      return invalid_argument(graph_.name + " names no nodes in its blocks");
    }
    report_rails();
    finish(graph_);
    return std::move(graph_);
  }

 private:
  // As a map by name, or as a sequence of maps with a name.
  static std::vector<std::pair<std::string, const Yaml*>> entries(const Yaml& list) {
    std::vector<std::pair<std::string, const Yaml*>> out;
    for (const auto& [name, value] : list.fields) out.emplace_back(name, &value);
    for (const Yaml& item : list.items) out.emplace_back(item.text("name"), &item);
    return out;
  }

  void read_switches(const Yaml& switches) {
    for (const auto& [name, value] : entries(switches)) {
      if (name.empty()) continue;
      switches_.insert(name);
      for (const std::string& child : value->texts("switches")) {
        switches_.insert(child);
        const auto [it, added] = above_.try_emplace(child, name);
        if (!added && it->second != name) {
          graph_.report(FindingKind::kContradiction, "switch " + child + " is below " + it->second +
                                                         " and below " + name +
                                                         "; only the first is kept");
        }
      }
      for (const char* key : {"blocks", "capacity_blocks"}) {
        for (const std::string& block : value->texts(key)) switch_of_block_[block] = name;
      }
      if (value->find("nodes") != nullptr) (void)read_block(*value, name, name);
    }
  }

  Status read_blocks(const Yaml& blocks) {
    for (const auto& [name, value] : entries(blocks)) {
      std::string above = value->text("switch");
      if (above.empty() && switch_of_block_.count(name)) above = switch_of_block_[name];
      TR_RETURN_IF_ERROR(read_block(*value, name, above));
    }
    return Status();
  }

  Status read_block(const Yaml& value, const std::string& name, const std::string& above) {
    Block block;
    block.name = name.empty() ? "of " + above : name;
    block.above = above;
    block.domain = value.text("nvlink");
    for (const char* key : {"annotations", "labels"}) {
      const Yaml* notes = value.find(key);
      if (notes == nullptr) continue;
      for (const auto& [note, text] : notes->fields) {
        if (note.find("accelerator") != std::string::npos) block.domain = text.scalar;
      }
    }
    std::vector<std::string> ranges = value.texts("nodes");
    if (const Yaml* nodes = value.find("nodes")) {
      for (const auto& [node, attributes] : nodes->fields) ranges.push_back(node);
    }
    for (const std::string& range : ranges) {
      if (expand(range, block.machines)) continue;
      return invalid_argument(graph_.name + ": block " + block.name + ": '" + range.substr(0, 60) +
                              "' is no list of nodes such as node[1-18], or more than " +
                              std::to_string(kMaxMachines));
    }
    machines_ += block.machines.size();
    if (machines_ > kMaxMachines) {
      return invalid_argument(graph_.name + " has more than " + std::to_string(kMaxMachines) +
                              " nodes");
    }
    blocks_.push_back(std::move(block));
    return Status();
  }

  // After this every switch has an end to its way up.
  void cut_circles() {
    constexpr int kMaxLevels = 64;
    for (const std::string& name : switches_) {
      int levels = 0;
      auto it = above_.find(name);
      while (it != above_.end() && ++levels <= kMaxLevels) it = above_.find(it->second);
      if (levels <= kMaxLevels) continue;
      graph_.report(FindingKind::kContradiction,
                    "switch " + name + " is above itself, or below more than " +
                        std::to_string(kMaxLevels) + " others; cut there");
      above_.erase(name);
    }
  }

  NodeId add_switch(const std::string& name) {
    if (const auto it = nodes_.find(name); it != nodes_.end()) return it->second;
    const auto above = above_.find(name);
    const NodeId parent = above == above_.end() ? 0 : add_switch(above->second);
    const NodeId id = graph_.add(NodeKind::kNetSwitch, name, parent);
    graph_.join_to_parent(id, LinkKind::kNetwork);
    return nodes_[name] = id;
  }

  void add_block(const Block& block) {
    NodeId above = 0;
    if (!block.above.empty() && !switches_.count(block.above)) {
      graph_.report(FindingKind::kDanglingLink, "block " + block.name + " is below switch " +
                                                    block.above +
                                                    ", which is not described; put at the top");
    } else if (!block.above.empty()) {
      above = add_switch(block.above);
    }
    NodeId domain = kNone;
    if (!block.domain.empty()) {
      const auto [it, added] = domains_.try_emplace(block.domain, kNone);
      if (added) it->second = graph_.add(NodeKind::kNvSwitch, block.domain, 0);
      domain = it->second;
    }
    for (const std::string& name : block.machines) add_machine(name, above, domain);
  }

  void add_machine(const std::string& name, NodeId above, NodeId domain) {
    const auto [it, added] = machine_nodes_.try_emplace(name, kNone);
    if (!added) {
      // Described again: a further rail, if below another switch.
      if (!attached_.insert({it->second, above}).second) {
        graph_.report(FindingKind::kDuplicateNumber,
                      "node " + name + " is described twice below one switch; counted once");
        return;
      }
      graph_.join(it->second, above, LinkKind::kNetwork);
      ++rails_;
      return;
    }
    it->second = graph_.add(NodeKind::kMachine, name, above);
    attached_.insert({it->second, above});
    graph_.join_to_parent(it->second, LinkKind::kNetwork);
    if (domain == kNone) return;
    Link& link = graph_.link(graph_.join(it->second, domain, LinkKind::kNvlink));
    link.width = 1;
    // What the NVLinks of a machine with 4 GPUs of 18 links carry.
    link.a_to_b_gb_s = link.b_to_a_gb_s = 4 * 18 * nvlink_gb_s(100);
    link.source = Source::kAssumed;
  }

  void report_rails() {
    if (rails_ > 0) {
      graph_.report(FindingKind::kUnevenNics,
                    std::to_string(rails_) + " nodes are below several switches: rails");
    }
    if (!domains_.empty()) {
      graph_.report(FindingKind::kNvlinkAssumed,
                    std::to_string(domains_.size()) +
                        " NVLink domains; assumed 4 GPUs a node with 18 links of sm_100 each");
    }
  }

  Graph graph_;
  std::set<std::string> switches_;
  std::map<std::string, std::string> above_, switch_of_block_;
  std::map<std::string, NodeId> nodes_, domains_, machine_nodes_;
  std::set<std::pair<NodeId, NodeId>> attached_;  // machine and switch
  std::vector<Block> blocks_;
  std::size_t machines_ = 0;
  int rails_ = 0;
};

}  // namespace

Result<Graph> read_cluster_yaml(std::string_view text, const std::string& name) {
  Result<Yaml> root = parse_yaml(text);
  if (!root.ok()) return root.status().with_context(name);
  return ClusterReader(name).read(root.value());
}

}  // namespace treering::topo
