// Every algorithm is proven: sizes 1..17, 32, 33, 64, 100, all roots of small communicators, in
// place and not, 1..4 slices a chunk, from the fewest slots that it needs to 2k+2.
#include <map>

#include "tests/algos/support.hpp"

namespace treering::algos {
namespace {

class Proof : public EachAlgorithm {};

// The fewest slots for k slices a chunk, derived by hand. A lane that relays towards its sender's
// root needs one; one that sends k slices before it receives the k that its peer sends meanwhile
// needs k; a ring in which every rank relays needs one more, to keep moving when all links hold k,
// and so does a fold that goes back over links that hold what others have yet to fold.
int expected_slots(const Algorithm& a, int n, int k) {
  const std::string name = a.name;
  if (n == 1) return 1;
  if (a.windows) return k;  // everybody tells everybody, then hears
  switch (a.collective) {
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kGather:
    case Collective::kScatter:
      return 1;
    case Collective::kScan:
    case Collective::kExscan:
      if (name == "direct") return n == 2 ? 1 : (k + 1) / 2;
      return name == "chain" && a.collective == Collective::kExscan && n > 2 ? k : 1;
    case Collective::kAllReduce:
      if (name == "tree") return 1;
      return name == "ring" || name == "direct" ? k + 1 : k;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return name == "ring" && n > 2 ? k + 1 : k;
    default:
      return k;
  }
}

void prove_progress(const Network& network, const Algorithm& a, int n, int k, int rotation) {
  const Result<int> fewest = minimum_slots(network, k);
  ASSERT_TRUE(fewest.ok()) << fewest.status().message();
  EXPECT_EQ(fewest.value(), expected_slots(a, n, k)) << k << " slices";
  const int most = 2 * k + 2;
  for (int slots = fewest.value(); slots <= most; ++slots) {
    const bool sampled = slots == fewest.value() || (slots + rotation) % 4 == 0;
    if (!sampled && !long_mode()) continue;
    const Status status = network.run(k, slots, 3);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST_P(Proof, IsComplete) {
  const Algorithm& a = GetParam();
  int rotation = 0;
  int proven = 0;
  for (const int n : proven_sizes()) {
    if (!a.supports(n)) continue;
    for (const int root : roots(a.collective, n)) {
      for (const bool in_place : {false, true}) {
        if (in_place && !a.in_place) continue;
        SCOPED_TRACE(where(n, root, in_place));
        const Program program = make_program(a, n, root, in_place);
        const Result<Network> network = Network::build(program);
        ASSERT_TRUE(network.ok()) << network.status().message();
        const Status meaning = check_meaning(network.value());
        ASSERT_TRUE(meaning.ok()) << meaning.message();
        ++proven;
        // Slots and slices do not see where a chunk lies.
        if (in_place) continue;
        for (int k = 1; k <= 4; ++k) {
          if (long_mode() || n <= 9 || k == 1 + rotation % 4) {
            prove_progress(network.value(), a, n, k, rotation);
          }
        }
        ++rotation;
      }
    }
  }
  EXPECT_GT(proven, 0);
}

TR_FOR_EACH_ALGORITHM(Proof);

TEST(Claims, InPlaceIsNotClaimedWhereItFails) {
  const Algorithm* bruck = find_algorithm(Collective::kAllToAll, "bruck");
  ASSERT_NE(bruck, nullptr);
  EXPECT_FALSE(bruck->in_place);
  const Status status = check(make_program(*bruck, 5, 0, true), 1, 2);
  EXPECT_NE(status.message().find("has been overwritten (in place)"), std::string::npos)
      << status.message();
}

// What is not claimed is not accidentally true: then it should be claimed.
TEST(Claims, AreAsStrongAsTheyCanBe) {
  for (const Algorithm& a : all_algorithms()) {
    if (a.supports(1) || a.needs_hosts() || !folds(a.collective)) continue;
    SCOPED_TRACE(full_name(a));
    const auto proven_with = [&](bool keeps_order, bool order_is_fixed) {
      for (const int n : {4, 5, 7}) {
        for (const int root : roots(a.collective, n)) {
          Program program = make_program(a, n, root);
          program.keeps_order = keeps_order;
          program.order_is_fixed = order_is_fixed;
          if (!check(program, 1, kUnlimitedSlots).ok()) return false;
        }
      }
      return true;
    };
    EXPECT_EQ(proven_with(true, false), a.keeps_order);
    EXPECT_EQ(proven_with(true, true), a.order_is_fixed);
  }
}

TEST(Registry, FindsByCollectiveAndName) {
  for (const Algorithm& a : all_algorithms()) {
    EXPECT_EQ(find_algorithm(a.collective, a.name), &a);
  }
  EXPECT_EQ(find_algorithm(Collective::kAllReduce, "bruck"), nullptr);
  EXPECT_EQ(algorithm_names(Collective::kAllReduce, 1), "local");
  EXPECT_EQ(algorithm_names(Collective::kAllToAll, 4), "pairwise, bruck, window");
  EXPECT_EQ(algorithm_names(Collective::kSendRecv, 4), "");
}

TEST(Registry, EveryCollectiveHasAlgorithmsForEverySize) {
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (collective == Collective::kSendRecv) continue;
    for (int n = 1; n <= 4096; n = n < 20 ? n + 1 : n * 2 - 1) {
      EXPECT_NE(algorithm_names(collective, n), "") << collective_name(collective) << " n=" << n;
    }
  }
}

// Operators that do not commute need an algorithm that keeps the order, without registered memory
// and, between hosts, without one-to-many links.
TEST(Registry, EveryFoldHasAnAlgorithmInRankOrder) {
  std::map<Collective, int> in_order, fixed;
  for (const Algorithm& a : all_algorithms()) {
    if (a.supports(1) || a.casts || a.needs_hosts()) continue;
    in_order[a.collective] += a.keeps_order;
    fixed[a.collective] += a.order_is_fixed;
  }
  for (const Collective c : {Collective::kAllReduce, Collective::kReduce,
                             Collective::kReduceScatter, Collective::kScan, Collective::kExscan}) {
    EXPECT_GT(in_order[c], 0) << collective_name(c);
    EXPECT_GT(fixed[c], 0) << collective_name(c);
  }
}

}  // namespace
}  // namespace treering::algos
