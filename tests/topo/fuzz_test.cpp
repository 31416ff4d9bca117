// Mutated descriptions: no reader may crash or hang, and whatever is read must be sound enough to
// be written, read again and asked for paths. A fixed number of mutations of each file, from a seed
// that is printed; TR_TEST_SEED repeats or changes it. TR_TEST_LONG: many more. TR_TEST_SMALL:
// fewer.
#include <cstdlib>
#include <random>

#include "tests/topo/util.hpp"
#include "topo/search.hpp"
#include "topo/write.hpp"

namespace treering::topo {
namespace {

const char* const kFiles[] = {"azure-ncv4-azhpc.xml",
                              "aws-p4d.24xl-ofi.xml",
                              "amd-8p1h_n1-rccl.xml",
                              "amd-8p_rome_n2_2-rccl.xml",
                              "dgx2-v100x16-hwloc.xml",
                              "cluster-nvl72-topograph.yaml",
                              "cluster-small-tree-topograph.yaml"};

const char* const kMatrix =
    "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV2\tPIX\tPXB\t0-3,8\t0\n"
    "GPU1\tNV2\t X \tSYS\tSYS\t4-7\t1\nGPU2\tPIX\tSYS\t X \tPXB\t0-3,8\t0,2-3\n"
    "NIC0\tPXB\tSYS\tPXB\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n";
const char* const kMeasured = "# us\n0 1.5 9 9\n1.5 0 9 9\n9 9 0 1e0\n9 9 1 0\n";

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  std::string mutate(std::string text) {
    for (std::size_t times = 1 + below(4); times > 0 && !text.empty(); --times) once(text);
    return text;
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }

  void once(std::string& text) {
    static const std::string kWords[] = {
        "-1", "0",    "99999999999", "0x",   "nan", "1e308",  "\"",    "<",           ">",
        "/>", "[",    "]",           "{",    "}",   ":",      ",",     "\n",          "\t",
        " ",  "GPU0", "X",           "NV36", "- ",  "</pci>", "<pci>", "ffff:ff:ff.f"};
    const std::size_t at = below(text.size());
    const std::size_t length = below(std::min<std::size_t>(text.size() - at, 200)) + 1;
    switch (below(7)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 3:
        text.insert(at, kWords[below(std::size(kWords))]);
        break;
      case 4:
        text.resize(at);
        break;
      case 5:
        replace_number(text, at);
        break;
      default:
        swap_lines(text, at);
        break;
    }
  }

  void replace_number(std::string& text, std::size_t at) {
    const std::size_t from = text.find_first_of("0123456789", at);
    if (from == std::string::npos) return;
    const std::size_t end = std::min(text.find_first_not_of("0123456789", from), text.size());
    static const char* kNumbers[] = {
        "0", "1", "-1", "255", "65536", "2147483648", "18446744073709551616"};
    text.replace(from, end - from, kNumbers[below(std::size(kNumbers))]);
  }

  void swap_lines(std::string& text, std::size_t at) {
    const std::size_t start = text.rfind('\n', at), end = text.find('\n', at);
    if (start == std::string::npos || end == std::string::npos) return;
    const std::string line = text.substr(start, end - start);
    text.erase(start, end - start);
    text.insert(std::min(below(text.size() + 1), text.size()), line);
  }

  std::mt19937 random_;
};

// Uses all of a graph: an index out of range shows under a sanitizer.
void use(const Graph& graph) {
  const std::string json = to_json(graph);
  const Result<Graph> again = read_text(json, "again");
  ASSERT_TRUE(again.ok()) << again.status().message();
  const Result<std::string> xml = to_nccl_xml(graph);
  if (xml.ok()) {
    const Result<Graph> from_xml = read_text(xml.value(), "xml");
    EXPECT_TRUE(from_xml.ok()) << from_xml.status().message();
  }
  const std::vector<NodeId> ends = graph.endpoints();
  const Paths paths(graph);
  for (std::size_t i = 0; i < std::min<std::size_t>(ends.size(), 12); ++i) {
    for (std::size_t j = 0; j < std::min<std::size_t>(ends.size(), 12); ++j) {
      const Path path = paths.best(ends[i], ends[j]);
      EXPECT_GE(path.gb_s, 0);
      EXPECT_EQ(path.path == PathClass::kSelf, i == j);
    }
  }
  if (graph.all(NodeKind::kGpu).size() <= 8) {
    SearchOptions options;
    options.max_steps = 100'000;
    const Result<RingPlan> rings = find_rings(graph, options);
    if (rings.ok()) {
      EXPECT_GT(rings.value().gb_s, 0);
      EXPECT_GT(find_trees(graph, rings.value(), options).gb_s, 0);
    }
  }
  for (const Link& link : graph.links) EXPECT_GT(link.a_to_b_gb_s, 0);
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' && *value != '0';
}

TEST(Fuzz, MutatedFilesAreReadOrRefused) {
  const char* chosen = std::getenv("TR_TEST_SEED");
  const auto seed = static_cast<std::uint32_t>(chosen != nullptr ? std::atoi(chosen) : 20240917);
  const int times = is_set("TR_TEST_LONG") ? 20000 : is_set("TR_TEST_SMALL") ? 80 : 800;
  std::printf("seed %u, %d mutations of each\n", seed, times);
  std::vector<std::string> texts = {kMatrix, kMeasured};
  for (const char* file : kFiles) texts.push_back(data(file));
  texts.push_back(to_json(graph_of(data("amd-8p_rome_n2_2-rccl.xml"))));
  Mutator mutator(seed);
  int read = 0, refused = 0;
  for (const std::string& text : texts) {
    for (int i = 0; i < times; ++i) {
      const std::string mutated = mutator.mutate(text);
      const Result<Graph> graph = read_text(mutated, "mutated");
      if (graph.ok()) {
        ++read;
        use(graph.value());
      } else {
        ++refused;
        EXPECT_FALSE(graph.status().message().empty());
      }
      if (testing::Test::HasFailure()) {
        FAIL() << "mutation " << i << " of:\n" << mutated.substr(0, 4000);
      }
    }
  }
  // Both happen, or the mutations are too weak or too strong.
  EXPECT_GT(read, times);
  EXPECT_GT(refused, times);
}

}  // namespace
}  // namespace treering::topo
