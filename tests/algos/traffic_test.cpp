// Messages per link, and the chunks in them, against formulas that are stated here in closed form,
// without the code of the algorithms. Bytes follow: chunks get different sizes.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>

#include "tests/algos/support.hpp"

namespace treering::algos {
namespace {

using Chunks = std::vector<int>;
using Links = std::map<LinkId, Chunks>;

LinkId pair_link(int src, int dst, int channel = 0) {
  return {LinkId::Kind::kPair, static_cast<std::uint8_t>(channel), src, dst};
}
LinkId cast_link(int src) { return {LinkId::Kind::kCast, 0, src, -1}; }

// All chunks of 0..n-1 but one.
Chunks all_but(int n, int missing) {
  Chunks chunks;
  for (int c = 0; c < n; ++c) {
    if (c != missing) chunks.push_back(c);
  }
  return chunks;
}

void append(Chunks& to, const Chunks& from) { to.insert(to.end(), from.begin(), from.end()); }

Links ring_links(Collective collective, int n, int root) {
  Links links;
  for (int r = 0; r < n; ++r) {
    const int right = wrap(r + 1, n);
    Chunks chunks;
    // A chunk that ends at r does not leave r; one that begins at right does not come from r.
    if (collective == Collective::kReduceScatter || collective == Collective::kAllReduce) {
      append(chunks, all_but(n, r));
    }
    if (collective == Collective::kAllGather || collective == Collective::kAllReduce) {
      append(chunks, all_but(n, right));
    }
    if (collective == Collective::kBroadcast && right != root) chunks = {0};
    if (collective == Collective::kReduce && r != root) chunks = {0};
    if (!chunks.empty()) links[pair_link(r, right)] = chunks;
  }
  return links;
}

int reversed_bits(int value, int bits) {
  int result = 0;
  for (int i = 0; i < bits; ++i) result |= (value >> i & 1) << (bits - 1 - i);
  return result;
}

// Member v of m = 2^bits ends the halving with the chunk whose number is v with its bits reversed.
// Across distance 2^j it gives away the chunks of members that agree with it below bit j and differ
// in it, and on the way back shows those that agree with it up to bit j.
Links halving_doubling_links(int n) {
  const int bits = floor_log2(n), m = 1 << bits, extra = n - m;
  const auto rank_of = [&](int v) { return v < extra ? 2 * v : v + extra; };
  Links links;
  for (int v = 0; v < m; ++v) {
    for (int j = 0; j < bits; ++j) {
      Chunks& chunks = links[pair_link(rank_of(v), rank_of(v ^ (1 << j)))];
      for (int c = 0; c < m; ++c) {
        const int difference = reversed_bits(c, bits) ^ v;
        if (difference % (1 << j) == 0 && (difference >> j & 1) == 1) chunks.push_back(c);
        if (difference % (2 << j) == 0) chunks.push_back(c);
      }
    }
    if (v >= extra) continue;
    append(links[pair_link(rank_of(v) + 1, rank_of(v))], all_but(m, -1));
    append(links[pair_link(rank_of(v), rank_of(v) + 1)], all_but(m, -1));
  }
  return links;
}

Links recursive_doubling_links(int n) {
  const int bits = floor_log2(n), m = 1 << bits, extra = n - m;
  const auto rank_of = [&](int v) { return v < extra ? 2 * v : v + extra; };
  Links links;
  for (int v = 0; v < m; ++v) {
    for (int j = 0; j < bits; ++j) links[pair_link(rank_of(v), rank_of(v ^ (1 << j)))] = {0};
    if (v >= extra) continue;
    links[pair_link(rank_of(v) + 1, rank_of(v))] = {0};
    links[pair_link(rank_of(v), rank_of(v) + 1)] = {0};
  }
  return links;
}

Links direct_links(const Algorithm& a, int n, int root) {
  Links links;
  for (int r = 0; r < n; ++r) {
    for (int q = 0; q < n; ++q) {
      if (q == r) continue;
      switch (a.collective) {
        case Collective::kAllReduce:
        case Collective::kReduceScatter:
        case Collective::kAllToAll:
          links[pair_link(r, q)] = {q};
          break;
        case Collective::kGather:
          if (q == root) links[pair_link(r, q)] = {r};
          break;
        case Collective::kScatter:
          if (r == root) links[pair_link(r, q)] = {q};
          break;
        case Collective::kReduce:
          if (q == root) links[pair_link(r, q)] = {0};
          break;
        case Collective::kScan:
        case Collective::kExscan:
          if (r < q) links[pair_link(r, q)] = {0};
          break;
        default:
          break;
      }
    }
    if (a.collective == Collective::kAllReduce && a.name == std::string("direct")) {
      for (int q = 0; q < n; ++q) {
        if (q != r) links[pair_link(r, q)].push_back(r);
      }
    } else if (a.collective == Collective::kAllReduce || a.collective == Collective::kAllGather) {
      links[cast_link(r)] = {r};
    }
    if (a.collective == Collective::kBarrier) links[cast_link(r)] = {0};
  }
  if (a.collective == Collective::kBroadcast) links[cast_link(root)] = {0};
  return links;
}

Links casts_of_chunk_0(int n) {
  Links links;
  for (int r = 0; r < n; ++r) links[cast_link(r)] = {0};
  return links;
}

Links publishes_only(int n) {
  Links links;
  for (int r = 0; r < n; ++r) links[cast_link(r)] = {};
  return links;
}

// v's parent is v without its lowest one bit; below it are the places that differ in lower bits
// only.
Links binomial_links(Collective collective, int n, int root) {
  Links links;
  for (int v = 1; v < n; ++v) {
    const int low = v & -v, rank = wrap(v + root, n), parent = wrap(v - low + root, n);
    Chunks below;
    for (int w = v; w < std::min(n, v + low); ++w) below.push_back(wrap(w + root, n));
    switch (collective) {
      case Collective::kBroadcast:
        links[pair_link(parent, rank)] = {0};
        break;
      case Collective::kScatter:
        links[pair_link(parent, rank)] = below;
        break;
      default:
        links[pair_link(rank, parent)] = below;
        break;
    }
  }
  return links;
}

Links chain_links(Collective collective, int n, int root) {
  Links links;
  for (int r = 0; r + 1 < n; ++r) links[pair_link(r, r + 1)] = {0};
  if (collective == Collective::kReduce && root != n - 1) links[pair_link(n - 1, root)] = {0};
  return links;
}

Links distance_links(int n, int sign, const std::function<Chunks(int rank, int distance)>& chunks) {
  Links links;
  for (int r = 0; r < n; ++r) {
    for (int distance = 1; distance < n; distance *= 2) {
      append(links[pair_link(r, wrap(r + sign * distance, n))], chunks(r, distance));
    }
  }
  return links;
}

Links expected_links(const Algorithm& a, int n, int root) {
  const std::string name = a.name;
  if (name == "local") return {};
  if (name == "ring") return ring_links(a.collective, n, root);
  if (name == "halving_doubling") return halving_doubling_links(n);
  if (name == "recursive_doubling") return recursive_doubling_links(n);
  if (name == "one_shot") return casts_of_chunk_0(n);
  if (a.windows) return publishes_only(n);
  if (name == "binomial") return binomial_links(a.collective, n, root);
  if (name == "chain") return chain_links(a.collective, n, root);
  if (name == "dissemination") return distance_links(n, 1, [](int, int) { return Chunks{0}; });
  if (name == "bruck" && a.collective == Collective::kAllGather) {
    return distance_links(n, -1, [n](int r, int distance) {
      Chunks chunks;
      for (int i = 0; i < std::min(distance, n - distance); ++i) chunks.push_back(wrap(r + i, n));
      return chunks;
    });
  }
  return direct_links(a, n, root);
}

// Different for every chunk, so that equal sums mean equal chunks.
std::uint64_t chunk_bytes(int chunk) { return 1000 + static_cast<std::uint64_t>(chunk) * chunk; }

std::uint64_t bytes(const Chunks& chunks) {
  std::uint64_t sum = 0;
  for (const int c : chunks) sum += chunk_bytes(c);
  return sum;
}

class LinkTraffic : public EachAlgorithm {};

TEST_P(LinkTraffic, EqualsTheFormula) {
  const Algorithm& a = GetParam();
  const std::string name = a.name;
  for (const int n : proven_sizes()) {
    if (!a.supports(n)) continue;
    for (const int root : roots(a.collective, n)) {
      SCOPED_TRACE(where(n, root, false));
      const auto sent = traffic(make_program(a, n, root));
      ASSERT_TRUE(sent.ok()) << sent.status().message();
      const Links expected = expected_links(a, n, root);
      EXPECT_EQ(sent.value().size(), expected.size());
      for (const Traffic& t : sent.value()) {
        const auto link = expected.find(t.link);
        ASSERT_NE(link, expected.end()) << to_string(t.link);
        const int publishes = a.collective == Collective::kBroadcast ? 3 : 2;
        const int messages = a.windows ? publishes : static_cast<int>(link->second.size());
        EXPECT_EQ(t.messages, messages) << to_string(t.link);
        EXPECT_EQ(bytes(t.chunks), bytes(link->second)) << to_string(t.link);
      }
    }
  }
}

// The others have tests of their own below.
std::vector<Algorithm> with_a_formula() {
  std::vector<Algorithm> algorithms;
  for (const Algorithm& a : flat_algorithms()) {
    const std::string name = a.name;
    if (name == "tree" || (name == "bruck" && a.collective == Collective::kAllToAll)) continue;
    algorithms.push_back(a);
  }
  return algorithms;
}

INSTANTIATE_TEST_SUITE_P(, LinkTraffic, ::testing::ValuesIn(with_a_formula()), algorithm_test_name);

struct Load {
  std::map<std::pair<int, int>, int> sent, received;  // (rank, chunk) -> messages
};

Load load_of(const Program& program) {
  Load load;
  const auto sent = traffic(program);
  EXPECT_TRUE(sent.ok()) << sent.status().message();
  if (!sent.ok()) return load;
  for (const Traffic& t : sent.value()) {
    for (const int c : t.chunks) {
      EXPECT_EQ(c, t.link.channel) << "tree t serves chunk t over channel t";
      ++load.sent[{t.link.src, c}];
      ++load.received[{t.link.dst, c}];
    }
  }
  return load;
}

// n-1 edges per tree, one message per edge and direction. A rank that is an inner node of one tree
// is a leaf of the other, so that nobody sends more than the whole vector (two halves) per
// direction.
TEST(Tree, TrafficIsBalanced) {
  const Algorithm* all_reduce = find_algorithm(Collective::kAllReduce, "tree");
  for (const int n : proven_sizes()) {
    if (n < 2) continue;
    SCOPED_TRACE(n);
    Load load = load_of(make_program(*all_reduce, n));
    for (int t = 0; t < 2; ++t) {
      int messages = 0;
      for (int r = 0; r < n; ++r) {
        messages += load.sent[{r, t}];
        // Up and down once per edge: as much in as out.
        EXPECT_EQ((load.sent[{r, t}]), (load.received[{r, t}]));
        EXPECT_LE((load.sent[{r, t}]), 3);
      }
      EXPECT_EQ(messages, 2 * (n - 1));
    }
    for (int r = 0; r < n; ++r)
      EXPECT_LE((load.sent[{r, 0}] + load.sent[{r, 1}]), 4) << "rank " << r;
  }
}

TEST(Tree, BroadcastAndReduceSendNoMoreThanTheVector) {
  for (const int n : proven_sizes()) {
    if (n < 2) continue;
    for (const int root : roots(Collective::kBroadcast, n)) {
      SCOPED_TRACE(testing::Message() << "n=" << n << " root=" << root);
      Load down = load_of(make_program(*find_algorithm(Collective::kBroadcast, "tree"), n, root));
      Load up = load_of(make_program(*find_algorithm(Collective::kReduce, "tree"), n, root));
      for (int r = 0; r < n; ++r) {
        for (int t = 0; t < 2; ++t) {
          EXPECT_EQ((down.received[{r, t}]), r == root ? 0 : 1);
          EXPECT_EQ((up.sent[{r, t}]), r == root ? 0 : 1);
          EXPECT_EQ((down.sent[{r, t}]), (up.received[{r, t}])) << "the same trees";
        }
        EXPECT_LE((down.sent[{r, 0}] + down.sent[{r, 1}]), 2) << "rank " << r;
      }
    }
  }
}

// A block crosses a link of distance d once if d is a one bit of its distance.
TEST(Bruck, AllToAllSendsEachBlockOncePerOneBit) {
  const Algorithm* bruck = find_algorithm(Collective::kAllToAll, "bruck");
  for (const int n : proven_sizes()) {
    if (n < 2) continue;
    const auto sent = traffic(make_program(*bruck, n));
    ASSERT_TRUE(sent.ok()) << sent.status().message();
    std::size_t links = 0;
    for (int d = 1; d < n; d *= 2) links += n;
    EXPECT_EQ(sent.value().size(), links);
    for (const Traffic& t : sent.value()) {
      const int d = wrap(t.link.dst - t.link.src, n);
      int blocks = 0;
      for (int i = 1; i < n; ++i) blocks += (i & d) != 0;
      EXPECT_EQ(t.messages, blocks) << "n=" << n << " " << to_string(t.link);
    }
  }
}

}  // namespace
}  // namespace treering::algos
