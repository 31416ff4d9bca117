// Algorithms that know the hosts, for every map of up to 4 hosts of up to 4 ranks, in three orders
// of ranks: proven as the flat ones are; with one rank a host they are the flat ones; and what
// crosses between hosts is what a formula says.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <random>

#include "algos/replay.hpp"
#include "tests/algos/support.hpp"

namespace treering::algos {
namespace {

std::vector<Algorithm> host_algorithms() {
  std::vector<Algorithm> algorithms;
  for (const Algorithm& a : all_algorithms()) {
    if (a.needs_hosts()) algorithms.push_back(a);
  }
  return algorithms;
}

// sizes[h] ranks on host h, in a row.
std::vector<int> in_a_row(const std::vector<int>& sizes) {
  std::vector<int> hosts;
  for (std::size_t h = 0; h < sizes.size(); ++h)
    hosts.insert(hosts.end(), static_cast<std::size_t>(sizes[h]), static_cast<int>(h));
  return hosts;
}

// One rank of each host that has more, again and again.
std::vector<int> interleaved(std::vector<int> sizes) {
  std::vector<int> hosts;
  for (bool more = true; more;) {
    more = false;
    for (std::size_t h = 0; h < sizes.size(); ++h) {
      if (sizes[h]-- <= 0) continue;
      hosts.push_back(static_cast<int>(h));
      more = true;
    }
  }
  return hosts;
}

std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* v = std::getenv("TR_TEST_SEED");
    const std::uint64_t s = v != nullptr ? std::strtoull(v, nullptr, 10) : std::random_device{}();
    std::printf("TR_TEST_SEED=%llu\n", static_cast<unsigned long long>(s));
    return s;
  }();
  return value;
}

// All sizes of `hosts` hosts.
std::vector<std::vector<int>> sizes_of(int hosts) {
  std::vector<std::vector<int>> all = {{}};
  for (int h = 0; h < hosts; ++h) {
    std::vector<std::vector<int>> longer;
    for (const std::vector<int>& sizes : all) {
      for (int size = 1; size <= 4; ++size) {
        longer.push_back(sizes);
        longer.back().push_back(size);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// In a row all of them; of the other orders every map, too, of 2 and 3 hosts, and of 4 each third.
const std::vector<std::vector<int>>& maps() {
  static const std::vector<std::vector<int>> all = [] {
    std::vector<std::vector<int>> result;
    std::mt19937_64 random(seed());
    for (int hosts = 2; hosts <= 4; ++hosts) {
      for (const std::vector<int>& sizes : sizes_of(hosts)) {
        const bool thin = kSanitized && !long_mode() && random() % 8 != 0;
        if (thin) continue;
        result.push_back(in_a_row(sizes));
        if (hosts == 4 && !long_mode() && random() % 3 != 0) continue;
        result.push_back(interleaved(sizes));
        result.push_back(in_a_row(sizes));
        std::shuffle(result.back().begin(), result.back().end(), random);
      }
    }
    return result;
  }();
  return all;
}

class OnHosts : public EachAlgorithm {};

// With as many slots as the library makes sure of (enough_slots).
TEST_P(OnHosts, IsProven) {
  const Algorithm& a = GetParam();
  int turn = 0;
  for (const std::vector<int>& map : maps()) {
    const HostMap hosts(map);
    if (!supports(a, hosts.ranks(), &hosts)) continue;
    for (const int root : roots(a.collective, hosts.ranks())) {
      const bool in_place = ++turn % 2 == 0;
      SCOPED_TRACE(full_name(a) + " on " + hosts.text() + where(hosts.ranks(), root, in_place));
      const Program program = make_program(a, hosts.ranks(), root, in_place, &hosts);
      const Result<Network> network = Network::build(program);
      ASSERT_TRUE(network.ok()) << network.status().message();
      const Status meaning = check_meaning(network.value());
      ASSERT_TRUE(meaning.ok()) << meaning.message();
      for (int k = 1; k <= 4; ++k) {
        if (!long_mode() && k != 1 + turn / 2 % 4) continue;
        const Status progress = network.value().run(k, enough_slots(a, k, &hosts), 3);
        ASSERT_TRUE(progress.ok()) << k << " slices: " << progress.message();
      }
    }
  }
  EXPECT_GT(turn, 300 / (kSanitized ? 16 : 1));
}

// Rings that share a link need more slots than a ring alone, and no more than enough_slots has.
TEST(TwoLevel, NeedsAsManySlotsAsRingsShareALink) {
  const Algorithm* a = find_algorithm(Collective::kAllReduce, "two_level");
  for (const auto& [sizes, rings] : std::vector<std::pair<std::vector<int>, int>>{
           {{2, 2, 2}, 1}, {{1, 1, 2}, 2}, {{1, 1, 1, 4}, 4}, {{2, 2, 3}, 2}}) {
    const HostMap hosts(in_a_row(sizes));
    for (int k = 1; k <= 4; ++k) {
      EXPECT_EQ(enough_slots(*a, k, &hosts), rings * k + 1);
      const Program program = make_program(*a, hosts.ranks(), 0, false, &hosts);
      const Result<Network> network = Network::build(program);
      ASSERT_TRUE(network.ok()) << network.status().message();
      const Result<int> least = minimum_slots(network.value(), k);
      ASSERT_TRUE(least.ok()) << least.status().message();
      EXPECT_LE(least.value(), rings * k + 1) << hosts.text() << " " << k << " slices";
      EXPECT_GE(least.value(), k + 1) << hosts.text() << " " << k << " slices";
    }
  }
}

// What a formula says of all bytes between hosts, in chunks.
std::uint64_t expected_crossings(const Algorithm& a, const HostMap& hosts) {
  const std::string name = a.name;
  const auto h = static_cast<std::uint64_t>(hosts.hosts());
  const auto chunks = static_cast<std::uint64_t>(chunk_count(a, hosts.ranks(), &hosts));
  if (name == "two_level_doubling") {
    const int log = floor_log2(hosts.hosts());
    const std::uint64_t members = 1ull << log;
    return members * static_cast<std::uint64_t>(log) + 2 * (h - members);
  }
  // Each chunk of the result crosses to every other host once, each fold from every other once.
  return (a.collective == Collective::kAllReduce ? 2 : 1) * (h - 1) * chunks;
}

TEST_P(OnHosts, CrossesBetweenHostsAsOftenAsTheFormulaSays) {
  const Algorithm& a = GetParam();
  int looked_at = 0;
  for (const std::vector<int>& map : maps()) {
    if (map.size() > 9) continue;
    const HostMap hosts(map);
    if (!supports(a, hosts.ranks(), &hosts)) continue;
    const int root = hosts.ranks() / 2;
    SCOPED_TRACE(full_name(a) + " on " + hosts.text());
    const auto links = traffic(make_program(a, hosts.ranks(), root, false, &hosts));
    ASSERT_TRUE(links.ok()) << links.status().message();
    std::uint64_t crossings = 0;
    for (const Traffic& t : links.value()) {
      EXPECT_EQ(t.link.kind, LinkId::Kind::kPair);
      if (map[static_cast<std::size_t>(t.link.src)] != map[static_cast<std::size_t>(t.link.dst)])
        crossings += static_cast<std::uint64_t>(t.messages);
    }
    EXPECT_EQ(crossings, expected_crossings(a, hosts));
    ++looked_at;
  }
  EXPECT_GT(looked_at, kSanitized ? 10 : 100);
}

// Additions and roundings that an input goes through at most (README, "Reduction rules").
struct Depth {
  int additions = 0, roundings = 0;
};
Depth depth_of(const Expressions& expressions, Expr e) {
  Depth most;
  const auto children = expressions.children(e);
  const int count = static_cast<int>(children.size());
  for (int i = 0; i < count; ++i) {
    const Depth below = depth_of(expressions, children[static_cast<std::size_t>(i)]);
    most.additions = std::max(most.additions, below.additions + count - std::max(i, 1));
    most.roundings = std::max(most.roundings, below.roundings + (count > 1 ? 1 : 0));
  }
  return most;
}

int ceil_log2(int n) { return n <= 1 ? 0 : 1 + ceil_log2((n + 1) / 2); }

Depth promised_depth(const Algorithm& a, const HostMap& hosts) {
  const std::string name = a.name;
  const int h = hosts.hosts(), p = hosts.most_members(), log = ceil_log2(h);
  if (name == "two_level_doubling") return {log + p - 1, log + 1};
  if (name == "two_level_tree" || a.collective == Collective::kReduce)
    return {(p + 1) * log + p, log + 2};
  return {hosts.ranks() - 1, h};
}

TEST(TwoLevel, RoundsNoMoreOftenThanTheReadmeSays) {
  for (const Algorithm& a : host_algorithms()) {
    if (!folds(a.collective)) continue;
    for (const std::vector<int>& map : maps()) {
      if (map.size() > 9) continue;
      const HostMap hosts(map);
      SCOPED_TRACE(full_name(a) + " on " + hosts.text());
      const Program program = make_program(a, hosts.ranks(), 1, false, &hosts);
      const Result<Network> network = Network::build(program);
      ASSERT_TRUE(network.ok()) << network.status().message();
      Replay replay(network.value());
      ASSERT_TRUE(network.value().run(1, kUnlimitedSlots, 1, &replay).ok());
      const Depth promised = promised_depth(a, hosts);
      for (int c = 0; c < program.chunks; ++c) {
        const int rank = a.collective == Collective::kReduceScatter ? c : 1;
        const Depth found = depth_of(replay.expressions(), replay.out(rank, c));
        EXPECT_GE(found.additions, 1);
        EXPECT_LE(found.additions, promised.additions);
        EXPECT_LE(found.roundings, promised.roundings);
      }
    }
  }
}

// The rings of a host carry equal shares: no owner is a bottleneck where hosts are equal.
TEST(TwoLevel, EqualHostsShareTheTraffic) {
  for (const Collective c :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    const Algorithm* a = find_algorithm(c, "two_level");
    const HostMap hosts(in_a_row({3, 3, 3, 3}));
    const auto links = traffic(make_program(*a, 12, 0, false, &hosts));
    ASSERT_TRUE(links.ok()) << links.status().message();
    std::map<int, int> sent;
    for (const Traffic& t : links.value()) {
      if (t.link.src / 3 == t.link.dst / 3) continue;
      EXPECT_EQ(t.link.dst, (t.link.src + 3) % 12) << "a ring keeps to its rail";
      sent[t.link.src] += t.messages;
    }
    EXPECT_EQ(sent.size(), 12u) << "every rank owns a ring";
    for (const auto& [rank, messages] : sent)
      EXPECT_EQ(messages, c == Collective::kAllReduce ? 6 : 3) << rank;
  }
}

bool equal_schedules(const Schedule& a, const Schedule& b) {
  if (a.steps.size() != b.steps.size() || a.lanes != b.lanes || a.operands != b.operands)
    return false;
  return std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(),
                    [](const Step& x, const Step& y) {
                      return x.verb == y.verb && x.last == y.last && x.lane == y.lane &&
                             x.inputs == y.inputs && x.outputs == y.outputs;
                    });
}

TEST(TwoLevel, WithOneRankAHostItIsTheFlatAlgorithm) {
  const struct {
    Collective collective;
    const char *two_level, *flat;
  } kPairs[] = {
      {Collective::kAllReduce, "two_level", "ring"},
      {Collective::kAllReduce, "two_level_tree", "tree"},
      {Collective::kAllReduce, "two_level_doubling", "recursive_doubling"},
      {Collective::kReduceScatter, "two_level", "ring"},
      {Collective::kAllGather, "two_level", "ring"},
      {Collective::kBroadcast, "two_level", "tree"},
      {Collective::kReduce, "two_level", "tree"},
  };
  for (const auto& p : kPairs) {
    const Algorithm* a = find_algorithm(p.collective, p.two_level);
    const Algorithm* flat = find_algorithm(p.collective, p.flat);
    for (int n = 2; n <= 9; ++n) {
      const HostMap hosts(in_a_row(std::vector<int>(static_cast<std::size_t>(n), 1)));
      EXPECT_EQ(chunk_count(*a, n, &hosts), flat->chunks(n));
      for (const int root : roots(p.collective, n)) {
        for (int r = 0; r < n; ++r) {
          EXPECT_TRUE(equal_schedules(record(*a, r, n, root, &hosts), record(*flat, r, n, root)))
              << full_name(*a) << " n=" << n << " root=" << root << " rank " << r;
        }
      }
    }
  }
}

// Rank order is claimed where each host's ranks are consecutive, and is not kept elsewhere.
TEST(TwoLevel, ClaimsRankOrderExactlyWhereItIsKept) {
  int kept = 0, lost = 0;
  for (const Algorithm& a : host_algorithms()) {
    if (!folds(a.collective)) continue;
    for (const std::vector<int>& map : {in_a_row({2, 2, 2}), in_a_row({1, 3, 2, 1}),
                                        interleaved({2, 2, 2}), interleaved({3, 2, 3, 1})}) {
      const HostMap hosts(map);
      Program program = make_program(a, hosts.ranks(), 0, false, &hosts);
      EXPECT_EQ(program.keeps_order, a.keeps_order && hosts.contiguous());
      program.keeps_order = true;
      const bool proven = check(program, 1, kUnlimitedSlots).ok();
      (proven ? kept : lost) += 1;
      if (a.keeps_order) {
        EXPECT_EQ(proven, hosts.contiguous()) << full_name(a) << " on " << hosts.text();
      }
    }
  }
  EXPECT_GE(kept, 4);
  EXPECT_GE(lost, 4);
}

TEST(TwoLevel, IsForTwoHostsAndMore) {
  const HostMap one = HostMap::one_host(4), two(in_a_row({2, 2}));
  for (const Algorithm& a : host_algorithms()) {
    EXPECT_FALSE(supports(a, 4));
    EXPECT_FALSE(supports(a, 4, &one));
    EXPECT_TRUE(supports(a, 4, &two));
    EXPECT_FALSE(supports(a, 5, &two)) << "a map of 4 ranks";
  }
  // And what needs one host is not for several.
  const Algorithm* cast = find_algorithm(Collective::kAllReduce, "two_shot");
  EXPECT_TRUE(supports(*cast, 4, &one));
  EXPECT_STREQ(why_unsupported(*cast, 4, &two),
               "it uses one-to-many links, which reach the ranks of one host only");
  EXPECT_EQ(algorithm_names(Collective::kAllReduce, 4, nullptr, &two),
            "ring, tree, halving_doubling, recursive_doubling, direct, two_level, two_level_tree, "
            "two_level_doubling");
}

// `casts` is what the tuner goes by when one-to-many links do not reach all ranks.
TEST(Registry, CastsAreDeclaredExactlyWhereTheyAreUsed) {
  const HostMap hosts(in_a_row({3, 2, 1}));
  for (const Algorithm& a : all_algorithms()) {
    const int n = a.supports(1) ? 1 : 6;
    bool used = false;
    for (int r = 0; r < n; ++r) {
      const HostMap* at = a.needs_hosts() ? &hosts : nullptr;
      for (const Operand& o : record(a, r, n, 0, at).operands)
        used |= o.space == Space::kLink && o.link.kind == LinkId::Kind::kCast;
    }
    EXPECT_EQ(used, a.casts) << full_name(a);
  }
}

INSTANTIATE_TEST_SUITE_P(, OnHosts, ::testing::ValuesIn(host_algorithms()), algorithm_test_name);

}  // namespace
}  // namespace treering::algos
