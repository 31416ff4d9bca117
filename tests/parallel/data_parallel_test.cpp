// Data parallelism against serial runs: V1, V2, V4, V5, V10, V19 of the verification plan, and what
// lectures get wrong about it.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "treering/parallel/parameters.hpp"

#include "ranks.hpp"
#include "tiny_net.hpp"

namespace {

using namespace partest;
using namespace tr::par;
using Floats = std::vector<float>;

struct Training {
  int ranks = 2;
  const char* gemm = "ref";
  int steps = 4;
  std::int64_t batch = 24;
  bool rank_order = true;
  StoreOptions store = {};
  unsigned delays_seed = 0;  // 0: none
};

// What one replica saw: the first step's reduced gradient, each step's loss, parameters and hash.
struct Seen {
  Floats gradient, parameters;
  std::vector<double> losses;
  std::vector<std::uint64_t> hashes;
  bool operator==(const Seen&) const = default;
};

Rows share(std::int64_t batch, int step, int rank, int ranks) {
  const std::int64_t each = batch / ranks, more = batch % ranks;
  const std::int64_t first = rank * each + std::min<std::int64_t>(rank, more);
  return {step * batch + first, each + (rank < more ? 1 : 0)};
}

std::vector<Seen> train(const Training& run) {
  std::vector<Seen> seen(static_cast<std::size_t>(run.ranks));
  on_ranks(run.ranks, [&](std::unique_ptr<Comm> dp) {
    const auto compute = must(make_host_compute(run.gemm));
    const auto alone = make_count_comm(0, 1);
    must(dp->set_rank_order(run.rank_order));
    const StorePtr store = tiny_store(*dp, *alone, *compute, run.store);
    TinyNet net(*compute, *store);
    Seen& mine = seen[static_cast<std::size_t>(dp->rank())];
    std::mt19937 random(run.delays_seed * 100 + static_cast<unsigned>(dp->rank()));
    const auto delay = [&] {
      if (run.delays_seed != 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    };
    for (int s = 0; s < run.steps; ++s) {
      delay();
      mine.losses.push_back(net.pass(share(run.batch, s, dp->rank(), run.ranks),
                                     static_cast<double>(run.batch), true));
      delay();
      must(store->finish());
      if (s == 0 && run.store.zero == 0) mine.gradient = gradients(*store, 4);
      must(store->step(1.0));
      mine.hashes.push_back(must(store->hash()));
    }
    mine.parameters = masters(*store);
  });
  return seen;
}

// The same shares one after another on one rank, as micro-batches.
Seen train_serially(const Training& run) {
  Seen seen;
  on_ranks(1, [&](std::unique_ptr<Comm> dp) {
    const auto compute = must(make_host_compute(run.gemm));
    const auto alone = make_count_comm(0, 1);
    const StorePtr store = tiny_store(*dp, *alone, *compute, run.store);
    TinyNet net(*compute, *store);
    for (int s = 0; s < run.steps; ++s) {
      double loss = 0.0;
      for (int q = 0; q < run.ranks; ++q) {
        loss += net.pass(share(run.batch, s, q, run.ranks), static_cast<double>(run.batch),
                         q + 1 == run.ranks);
      }
      seen.losses.push_back(loss);
      must(store->finish());
      if (s == 0) seen.gradient = gradients(*store, 4);
      must(store->step(1.0));
      seen.hashes.push_back(must(store->hash()));
    }
    seen.parameters = masters(*store);
  });
  return seen;
}

constexpr int kSizes[] = {2, 4, 8};

// Of the README's list, those that need no registered memory: nobody registers what is so short.
TEST(V1Replicas, HaveEqualParametersAfterEveryStep) {
  for (const char* algorithm :
       {"", "all_reduce:ring", "all_reduce:tree", "all_reduce:halving_doubling",
        "all_reduce:recursive_doubling", "all_reduce:one_shot", "all_reduce:two_shot"}) {
    for (const int n : {2, 3, 4, 8}) {
      ::setenv("TR_ALGO", algorithm, 1);
      const std::vector<Seen> seen = train({.ranks = n, .rank_order = false});
      ::unsetenv("TR_ALGO");
      EXPECT_EQ(std::set(seen[0].hashes.begin(), seen[0].hashes.end()).size(), 4u)
          << "nothing was learned";
      for (const Seen& one : seen) {
        EXPECT_EQ(one.hashes, seen[0].hashes) << algorithm << ", " << n << " ranks";
      }
    }
  }
}

TEST(V1Replicas, SoDoThoseOfEveryZeroStage) {
  for (const char* algorithms : {"reduce_scatter:ring,all_gather:ring",
                                 "reduce_scatter:direct,all_gather:bruck", "all_gather:direct"}) {
    for (const int n : kSizes) {
      for (const int zero : {1, 2, 3}) {
        Training run{.ranks = n, .rank_order = false};
        run.store.zero = zero;
        ::setenv("TR_ALGO", algorithms, 1);
        const std::vector<Seen> seen = train(run);
        ::unsetenv("TR_ALGO");
        EXPECT_EQ(std::set(seen[0].hashes.begin(), seen[0].hashes.end()).size(), 4u);
        for (const Seen& one : seen) {
          EXPECT_EQ(one.hashes, seen[0].hashes)
              << algorithms << ", zero " << zero << ", " << n << " ranks";
        }
      }
    }
  }
}

TEST(V2Reruns, AreEqualWhateverTheTiming) {
  for (const int n : kSizes) {
    for (const char* algorithm : {"", "all_reduce:ring"}) {
      ::setenv("TR_ALGO", algorithm, 1);
      Training run{.ranks = n, .rank_order = false};
      run.store.first_bucket_bytes = run.store.bucket_bytes = 1;
      const std::vector<Seen> first = train(run);
      EXPECT_EQ(train(run), first) << n << " ranks";
      for (const unsigned seed : {1u, 2u, 3u}) {
        run.delays_seed = seed;
        EXPECT_EQ(train(run), first) << n << " ranks, delays of seed " << seed;
      }
      ::unsetenv("TR_ALGO");
    }
  }
}

// A serial run adds its micro-batches to a sum that starts at zero; replicas' sums are added in the
// same order. Whichever product it is: both compute the same shapes.
TEST(V4RankOrder, EqualsSerialAccumulationBitForBit) {
  for (const char* gemm : {"ref", "openblas"}) {
    if (gemm[0] == 'o' && !have_openblas()) continue;
    for (int n = 1; n <= 8; ++n) {
      const Training run{.ranks = n, .gemm = gemm};
      const Seen serial = train_serially(run);
      for (const Seen& one : train(run)) {
        EXPECT_EQ(one.gradient, serial.gradient) << gemm << ", " << n << " ranks";
        EXPECT_EQ(one.hashes, serial.hashes) << gemm << ", " << n << " ranks";
      }
    }
  }
}

TEST(V5RingsAndTrees, AreNearTheWholeBatch) {
  for (const char* algorithm : {"all_reduce:ring", "all_reduce:tree"}) {
    for (const int n : kSizes) {
      Training run{.ranks = n, .steps = 100, .rank_order = false};
      ::setenv("TR_ALGO", algorithm, 1);
      const std::vector<Seen> seen = train(run);
      ::unsetenv("TR_ALGO");
      run.ranks = 1;
      const Seen serial = train_serially(run);
      EXPECT_LE(relative_error(seen[0].gradient, serial.gradient), 2e-6) << n;
      for (int s = 0; s < run.steps; ++s) {
        double loss = 0.0;
        for (const Seen& one : seen) loss += one.losses[s];
        EXPECT_NEAR(loss, serial.losses[s], 1e-6 * serial.losses[s])
            << algorithm << ", step " << s << ", " << n << " ranks";
      }
      EXPECT_LT(serial.losses.back(), serial.losses.front());
    }
  }
}

TEST(V10Buckets, NeitherTheirSizeNorOverlapChangesABit) {
  for (const int n : kSizes) {
    Training run{.ranks = n};
    run.store.overlap = false;
    const std::vector<Seen> expected = train(run);
    for (const bool overlap : {false, true}) {
      for (const std::int64_t cap :
           {std::int64_t{1}, std::int64_t{1} << 10, std::int64_t{1} << 40}) {
        run.store.overlap = overlap;
        run.store.first_bucket_bytes = run.store.bucket_bytes = cap;
        const std::vector<Seen> seen = train(run);
        for (int r = 0; r < run.ranks; ++r)
          EXPECT_EQ(seen[r].hashes, expected[r].hashes) << overlap << " " << cap;
      }
    }
  }
}

// A ring's order of summing goes by the chunk, and so by where a bucket begins.
TEST(V10Buckets, OfARingAreCloseWhateverTheirSize) {
  ::setenv("TR_ALGO", "all_reduce:ring", 1);
  for (const int n : kSizes) {
    Training run{.ranks = n, .rank_order = false};
    run.store.first_bucket_bytes = run.store.bucket_bytes = std::int64_t{1} << 40;
    const std::vector<Seen> expected = train(run);
    for (const bool overlap : {false, true}) {
      for (const std::int64_t cap : {std::int64_t{1}, std::int64_t{1} << 10}) {
        run.store.overlap = overlap;
        run.store.first_bucket_bytes = run.store.bucket_bytes = cap;
        const std::vector<Seen> seen = train(run);
        EXPECT_LE(relative_error(seen[0].gradient, expected[0].gradient), 2e-6) << n << " " << cap;
        for (int s = 0; s < run.steps; ++s) {
          EXPECT_NEAR(seen[0].losses[s], expected[0].losses[s], 1e-6 * expected[0].losses[s]);
        }
      }
    }
  }
  ::unsetenv("TR_ALGO");
}

TEST(V10Buckets, StartBeforeTheBackwardPassEnds) {
  const auto compute = must(make_host_compute("dry"));
  const auto dp = make_count_comm(0, 2), alone = make_count_comm(0, 1);
  StoreOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 1;
  const auto calls = [&] { return dp->traffic()[Operation::kAllReduce].calls; };
  for (const bool overlap : {true, false}) {
    options.overlap = overlap;
    dp->reset_traffic();
    const StorePtr store = tiny_store(*dp, *alone, *compute, options);
    must(store->ready(1));
    EXPECT_EQ(calls(), overlap ? 1 : 0);  // layer 0 is still to come
    must(store->ready(0));
    EXPECT_EQ(calls(), overlap ? 2 : 0);
    must(store->finish());
    EXPECT_EQ(calls(), 2);
  }
  // By index, not by readiness: layer 0 waits for layer 1.
  options.overlap = true;
  dp->reset_traffic();
  const StorePtr store = tiny_store(*dp, *alone, *compute, options);
  must(store->ready(0));
  EXPECT_EQ(calls(), 0);
  must(store->ready(1));
  EXPECT_EQ(calls(), 2);
}

// 311 parameters, a prime number; 25 rows, and one row less than there are replicas, so that one
// has none.
TEST(V19Uneven, RowsAndParametersThatDoNotDivide) {
  for (const int n : {2, 3, 4, 8}) {
    for (const std::int64_t batch : {25, n - 1}) {
      for (const int zero : {0, 1, 2, 3}) {
        Training run{.ranks = n, .batch = batch};
        run.store.zero = zero;
        Training serial = run;
        serial.store.zero = 0;
        const Seen expected = train_serially(serial);
        for (const Seen& one : train(run)) {
          EXPECT_EQ(one.hashes, expected.hashes) << "zero " << zero << ", " << n << " ranks";
        }
      }
    }
  }
}

// Means of means: what averaging 10 and 6 rows over two replicas would give. Sums over a global
// normalizer are right.
TEST(V19Uneven, MeansOfMeansAreNotTheMean) {
  const auto gradient_of = [](const std::vector<Rows>& parts,
                              const std::vector<double>& normalizers) {
    Floats gradient;
    on_ranks(1, [&](std::unique_ptr<Comm> dp) {
      const auto compute = must(make_host_compute("ref"));
      const auto alone = make_count_comm(0, 1);
      const StorePtr store = tiny_store(*dp, *alone, *compute, {});
      TinyNet net(*compute, *store);
      for (std::size_t i = 0; i < parts.size(); ++i)
        net.pass(parts[i], normalizers[i], i + 1 == parts.size());
      must(store->finish());
      gradient = gradients(*store, 4);
    });
    return gradient;
  };
  const Floats whole = gradient_of({{0, 16}}, {16});
  EXPECT_LE(relative_error(gradient_of({{0, 10}, {10, 6}}, {16, 16}), whole), 2e-6);
  EXPECT_GE(relative_error(gradient_of({{0, 10}, {10, 6}}, {2 * 10, 2 * 6}), whole), 0.02);
}

// The last replica has run out of rows and lets the others go on; it adds nothing, and stays their
// equal.
TEST(V19Uneven, AReplicaWithoutRowsJoins) {
  for (const int n : {2, 3, 4, 8}) {
    for (const int zero : {0, 1, 2}) {
      std::vector<std::uint64_t> hashes(static_cast<std::size_t>(n)), expected(1);
      const auto body = [&](std::unique_ptr<Comm> dp, std::vector<std::uint64_t>& to) {
        const int with_rows = n - 1;
        const auto compute = must(make_host_compute("ref"));
        const auto alone = make_count_comm(0, 1);
        must(dp->set_rank_order(true));
        StoreOptions options{.zero = zero};
        options.first_bucket_bytes = options.bucket_bytes = 1;
        const StorePtr store = tiny_store(*dp, *alone, *compute, options);
        TinyNet net(*compute, *store);
        for (int s = 0; s < 3; ++s) {
          if (dp->size() == 1) {
            for (int q = 0; q < with_rows; ++q) net.pass({q * 8, 8}, 16, q + 1 == with_rows);
          } else if (dp->rank() < with_rows) {
            net.pass({dp->rank() * 8, 8}, 16, true);
          } else {
            must(store->ready_empty());
          }
          must(store->finish());
          must(store->step(1.0));
        }
        to[static_cast<std::size_t>(dp->rank())] = must(store->hash());
      };
      on_ranks(n, [&](std::unique_ptr<Comm> dp) { body(std::move(dp), hashes); });
      on_ranks(1, [&](std::unique_ptr<Comm> dp) { body(std::move(dp), expected); });
      EXPECT_EQ(hashes, std::vector<std::uint64_t>(static_cast<std::size_t>(n), expected[0]))
          << "zero " << zero << ", " << n << " ranks";
    }
  }
}

}  // namespace
