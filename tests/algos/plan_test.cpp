// Plans of large communicators: up to 4,096 ranks, recorded rank by rank, never all at once.
#include <algorithm>
#include <map>

#include "algos/replay.hpp"
#include "algos/tree.hpp"
#include "tests/algos/support.hpp"

namespace treering::algos {
namespace {

int ceil_log2(int n) { return n < 2 ? 0 : floor_log2(n - 1) + 1; }

// What a rank sends and receives, as messages; a cast is received by n-1 ranks.
struct Counts {
  std::int64_t steps = 0, sent = 0, cast = 0, received = 0;
};

Counts counted(const Schedule& s) {
  Counts counts;
  for (const Step& step : s.steps) {
    ++counts.steps;
    for (const Operand& o : s.inputs(step)) counts.received += o.space == Space::kLink && !o.peek;
    for (const Operand& o : s.outputs(step)) {
      if (o.space != Space::kLink) continue;
      ++(o.link.kind == LinkId::Kind::kCast ? counts.cast : counts.sent);
    }
  }
  return counts;
}

// Steps, messages sent and received by a rank that is neither first nor last, nor paired, nor root.
Counts expected(const Algorithm& a, std::int64_t n, std::int64_t r) {
  const std::string name = a.name;
  const std::int64_t up = n - 1, log = ceil_log2(static_cast<int>(n));
  switch (a.collective) {
    case Collective::kAllReduce:
      if (name == "ring") return {2 * up + 1, 2 * up, 0, 2 * up};
      if (name == "one_shot") return {2, 0, 1, up};
      if (name == "two_shot") return {2 * up + 1, up, 1, 2 * up};
      if (name == "direct") return {2 * up + 1, 2 * up, 0, 2 * up};
      if (a.windows) return {2 * n + 1, 0, 2, 2 * up};  // one shot or two
      // Powers of two only.
      if (name == "halving_doubling") return {4 * up, 2 * up, 0, 2 * up};
      if (name == "recursive_doubling") return {2 * log, log, 0, log};
      break;
    case Collective::kReduceScatter:
      if (name == "ring") return {n, up, 0, up};
      if (name == "direct") return {n, up, 0, up};
      if (name == "window") return {2 * n + 1, 0, 2, 2 * up};
      break;
    case Collective::kAllGather:
      if (name == "ring") return {n + 1, up, 0, up};
      if (name == "bruck") return {2 * up + 1, up, 0, up};
      if (name == "direct") return {n + 1, 0, 1, up};
      if (name == "window") return {3 * n, 0, 2, 2 * up};
      break;
    case Collective::kAllToAll:
      if (name == "pairwise") return {2 * up + 1, up, 0, up};
      break;
    case Collective::kBarrier:
      if (name == "dissemination") return {2 * log, log, 0, log};
      if (name == "direct") return {n, 0, 1, up};
      break;
    case Collective::kScan:
      if (name == "direct") return {2, up - r, 0, r};
      return {2, 1, 0, 1};
    case Collective::kExscan:
      if (name == "direct") return {2, up - r, 0, r};
      return {2, 1, 0, 1};
    case Collective::kReduce:
      return {1, 1, 0, name == "direct" ? 0 : 1};
    case Collective::kBroadcast:
      if (name == "ring") return {1, 1, 0, 1};
      if (name == "direct") return {1, 0, 0, 1};
      break;
    case Collective::kGather:
      if (name == "direct") return {1, 1, 0, 0};
      break;
    case Collective::kScatter:
      if (name == "direct") return {1, 0, 0, 1};
      break;
    default:
      break;
  }
  return {-1, -1, -1, -1};
}

TEST(LargePlans, CountsEqualTheFormulas) {
  int compared = 0;
  for (const Algorithm& a : all_algorithms()) {
    const std::string name = a.name;
    for (const int n : {1000, 1024, 4095, 4096}) {
      if (!a.supports(n) || name == "tree") continue;
      const bool doubling = name == "halving_doubling" || name == "recursive_doubling";
      if (doubling && n != 1024 && n != 4096) continue;
      const int r = n / 2 + 1;
      const Counts formula = expected(a, n, r);
      if (formula.steps < 0) continue;
      SCOPED_TRACE(full_name(a) + " n=" + std::to_string(n));
      const Counts counts = counted(record(a, r, n, 0));
      EXPECT_EQ(counts.steps, formula.steps);
      EXPECT_EQ(counts.sent, formula.sent);
      EXPECT_EQ(counts.cast, formula.cast);
      EXPECT_EQ(counts.received, formula.received);
      ++compared;
    }
  }
  EXPECT_GT(compared, 80);
}

// Not powers of two: members pay as in the largest power of two below; each odd rank of a pair
// sends its vector and receives the result.
TEST(LargePlans, FoldInAndOutOfOtherSizes) {
  const Algorithm* a = find_algorithm(Collective::kAllReduce, "halving_doubling");
  const int n = 4000, m = 2048, extra = n - m;
  const Counts odd = counted(record(*a, 3, n));
  EXPECT_EQ(odd.sent, m);
  EXPECT_EQ(odd.received, m);
  const Counts even = counted(record(*a, 2, n));
  EXPECT_EQ(even.sent, 2 * (m - 1) + m);
  EXPECT_EQ(even.received, 2 * (m - 1) + m);
  const Counts alone = counted(record(*a, 2 * extra, n));
  EXPECT_EQ(alone.sent, 2 * (m - 1));
}

// Every message that is sent to a rank is received there: both ends are recorded on their own.
TEST(LargePlans, BothEndsOfALinkAgree) {
  for (const Algorithm& a : all_algorithms()) {
    const int n = 4096, r = 1234;
    if (!a.supports(n) || a.windows) continue;
    SCOPED_TRACE(full_name(a));
    const Schedule mine = record(a, r, n, 0);
    std::map<LinkId, std::int64_t> sent;
    for (const Step& step : mine.steps) {
      for (const Operand& o : mine.outputs(step)) {
        if (o.space == Space::kLink) ++sent[o.link];
      }
    }
    int looked_at = 0;
    for (const auto& [link, messages] : sent) {
      // A few readers of each kind are enough: recording all takes long.
      if (++looked_at > 3) break;
      const int reader = link.kind == LinkId::Kind::kPair ? link.dst : wrap(r + 77 * looked_at, n);
      const Schedule theirs = record(a, reader, n, 0);
      std::int64_t received = 0;
      for (const Step& step : theirs.steps) {
        for (const Operand& o : theirs.inputs(step)) {
          received += o.space == Space::kLink && o.link == link && !o.peek;
        }
      }
      EXPECT_EQ(received, messages) << to_string(link);
    }
  }
}

// Some are small enough to be proven whole at 4,096 ranks.
TEST(LargePlans, TreesAreCompleteAt4096Ranks) {
  for (const auto& [collective, name] :
       {std::pair{Collective::kAllReduce, "tree"}, std::pair{Collective::kBroadcast, "tree"},
        std::pair{Collective::kReduce, "tree"}, std::pair{Collective::kBroadcast, "binomial"}}) {
    const Algorithm* a = find_algorithm(collective, name);
    SCOPED_TRACE(full_name(*a));
    const Program program = make_program(*a, 4096, 3000);
    const Result<Network> network = Network::build(program);
    ASSERT_TRUE(network.ok()) << network.status().message();
    Replay replay(network.value());
    const Status status = network.value().run(1, 1, 1, &replay);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int rank = 0; rank < 4096; ++rank) {
      for (int chunk = 0; chunk < program.chunks; ++chunk) {
        if (!has_out(program, rank, chunk)) continue;
        const Expr e = replay.out(rank, chunk);
        ASSERT_NE(e, kNoExpr);
        if (folds(collective)) {
          ASSERT_TRUE(replay.expressions().is_all_below(e, 4096)) << rank;
        } else {
          ASSERT_EQ(replay.expressions().node(e).leaf_rank, 3000) << rank;
        }
      }
    }
  }
}

// The shape of the two trees, for every size to 4,096: each a tree over all members, at most log2 n
// high, an inner node of one is a leaf of the other.
TEST(TwoTrees, HaveTheirShape) {
  for (int n = 1; n <= 4096; n = n < 300 ? n + 1 : n * 2 - 3) {
    SCOPED_TRACE(n);
    for (int shift = 0; shift < 2; ++shift) {
      const int root = tree::root_member(n, shift);
      for (int member = 0; member < n; ++member) {
        const tree::Node me = tree::node(n, member, shift);
        ASSERT_EQ(me.parent < 0, member == root);
        ASSERT_LE(me.children.count, 2);
        for (int i = 0; i < me.children.count; ++i) {
          ASSERT_EQ(tree::node(n, me.children.rank[i], shift).parent, member);
        }
        if (me.parent >= 0) {
          const Peers siblings = tree::node(n, me.parent, shift).children;
          ASSERT_EQ(std::count(siblings.rank, siblings.rank + siblings.count, member), 1);
        }
        int height = 0;
        for (int at = member; at != root; at = tree::node(n, at, shift).parent) ++height;
        ASSERT_LE(height, floor_log2(n + shift));
        if (me.children.count > 0) {
          ASSERT_EQ(tree::node(n, member, 1 - shift).children.count, 0) << member;
        }
      }
    }
  }
}

}  // namespace
}  // namespace treering::algos
