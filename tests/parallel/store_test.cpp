// What a store refuses and names, norms over every layout, partial gradients, pieces, and
// compression.
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "treering/parallel/mesh.hpp"
#include "treering/parallel/parameters.hpp"

#include "ranks.hpp"
#include "tiny_net.hpp"

namespace {

using namespace partest;
using namespace tr::par;
using Floats = std::vector<float>;

// A rank's own: arithmetic, and a group of one in place of tp.
struct Rank {
  std::unique_ptr<Comm> dp;
  std::unique_ptr<Compute> compute = must(make_host_compute("ref"));
  std::unique_ptr<Comm> alone = make_count_comm(0, 1);
  StorePtr store(const StoreOptions& options) { return tiny_store(*dp, *alone, *compute, options); }
};
void on_replicas(int n, const std::function<void(Rank&)>& body) {
  on_ranks(n, [&](std::unique_ptr<Comm> dp) {
    Rank rank{std::move(dp)};
    body(rank);
  });
}

template <class Answer>
void expect_error(const Answer& answered, tr_result_t code, const std::string& text) {
  ASSERT_FALSE(answered) << text;
  EXPECT_EQ(answered.error().code, code);
  EXPECT_EQ(answered.error().message, text);
}

TEST(Store, NamesALayerThatWasNeverReadyOnEveryReplicaAndGoesOn) {
  for (const bool overlap : {true, false}) {
    for (const int zero : {0, 1, 2, 3}) {
      on_replicas(3, [&](Rank& rank) {
        StoreOptions options{.zero = zero};
        options.overlap = overlap;
        options.first_bucket_bytes = options.bucket_bytes = 1;
        const StorePtr store = rank.store(options);
        must(store->ready(1));
        if (rank.dp->rank() != 2) must(store->ready(0));
        expect_error(store->finish(), TR_INVALID_ARGUMENT,
                     "gradients that were never ready in this step: layer 0 on replica 2");
        expect_error(store->step(1.0), TR_INVALID_USAGE, "step: before finish");
        must(store->drop_gradients());
        const std::uint64_t before = must(store->hash());
        TinyNet(*rank.compute, *store).pass({0, 4}, 12, true);
        must(store->finish());
        must(store->step(1.0));
        EXPECT_NE(must(store->hash()), before);
        EXPECT_EQ(store->steps(), 1);
      });
    }
  }
}

TEST(Store, NamesWhatReplicasHaveDifferently) {
  on_replicas(3, [](Rank& rank) {
    const bool is_odd = rank.dp->rank() == 2;
    const auto create = [&](const Model& model, std::vector<ParameterSpec> mine,
                            const StoreOptions& options) {
      return ParameterStore::create(*rank.dp, *rank.alone, *rank.compute, model, std::move(mine),
                                    options);
    };
    Model model(Loss::kMeanSquare);
    model.linear(4, is_odd ? 6 : 5);
    expect_error(create(model, model.parameters(), {}), TR_MISMATCH,
                 std::string("replicas 0 and 2 differ in parameter 0: here layer 0 weight, 4 x ") +
                     (is_odd ? "6" : "5") + " replicated");
    std::vector<ParameterSpec> fewer = tiny_model().parameters();
    if (is_odd) fewer.pop_back();
    expect_error(create(tiny_model(), fewer, {}), TR_MISMATCH,
                 std::string("replicas 0 and 2 differ in how many parameters they have: here ") +
                     (is_odd ? "3" : "4"));
    const auto options = create(tiny_model(), tiny_model().parameters(), {.zero = is_odd ? 1 : 0});
    ASSERT_FALSE(options);
    EXPECT_EQ(options.error().message.find(
                  std::string("replicas 0 and 2 differ in the options of their stores: "
                              "here zero ") +
                  (is_odd ? "1" : "0") + ", fp32, "),
              0u)
        << options.error().message;
    // Nothing has happened: a good one can be made.
    EXPECT_TRUE(create(tiny_model(), tiny_model().parameters(), {}));
  });
}

TEST(Store, RefusesMisuse) {
  on_replicas(1, [](Rank& rank) {
    const Model model = tiny_model();
    const auto create = [&](const StoreOptions& options) {
      return ParameterStore::create(*rank.dp, *rank.alone, *rank.compute, model, model.parameters(),
                                    options);
    };
    expect_error(create({.zero = 4}), TR_INVALID_ARGUMENT, "zero is 0, 1, 2 or 3, not 4");
    const auto hook = make_bf16_hook();
    StoreOptions compressed{.zero = 1};
    compressed.hook = hook.get();
    expect_error(create(compressed), TR_INVALID_ARGUMENT,
                 "gradient compression (bf16) works with zero 0 only, not with zero 1");
    const StorePtr store = rank.store({.zero = 3});
    expect_error(store->ready(2), TR_INVALID_ARGUMENT, "ready: layer 2 is not of this rank");
    expect_error(store->acquire(-1), TR_INVALID_ARGUMENT, "acquire: layer -1 is not of this rank");
    expect_error(store->gradient(4), TR_INVALID_ARGUMENT,
                 "gradient: parameter 4 is not of this rank");
    expect_error(store->ready_empty(), TR_UNSUPPORTED,
                 "with zero 3 all replicas gather each layer: a replica without rows runs "
                 "micro-batches of no rows "
                 "instead of ready_empty()");
    expect_error(store->gradient_norm(*rank.alone), TR_INVALID_USAGE,
                 "gradient_norm: before finish");
    EXPECT_EQ(store->parameter(0).data, nullptr) << "not acquired";
    must(store->ready(1));
    expect_error(store->ready(1), TR_INVALID_USAGE, "layer 1 was ready already in this step");
    expect_error(
        store->gradient(2), TR_INVALID_USAGE,
        "the gradient of layer 1 weight was reduced already in this step: its layer was ready");
    must(store->ready(0));
    must(store->acquire(0));
    must(store->finish());
    expect_error(store->finish(), TR_INVALID_USAGE, "finish: called twice in a step");
    expect_error(store->step(1.0), TR_INVALID_USAGE,
                 "step: layer 0 is still acquired, and would keep its old parameters");
    store->release(0);
    must(store->step(1.0));
    expect_error(store->set_steps(-1), TR_INVALID_ARGUMENT, "set_steps: -1 steps");
  });
}

TEST(Store, FindsNaNWhereItArose) {
  for (const bool overlap : {true, false}) {
    for (const int zero : {0, 1, 2, 3}) {
      on_replicas(2, [&](Rank& rank) {
        StoreOptions options{.zero = zero};
        options.overlap = overlap;
        options.check_finite = true;
        const StorePtr store = rank.store(options);
        if (rank.dp->rank() == 1) {
          const View g = must(store->gradient(2));  // 17 x 5
          *static_cast<float*>(g.at(3, 4)) = std::numeric_limits<float>::quiet_NaN();
        }
        must(store->ready(1));
        must(store->ready(0));
        EXPECT_EQ(must(store->find_not_finite()),
                  rank.dp->rank() == 0
                      ? ""
                      : "the gradient of layer 1 weight is not finite at row 3, column 4 of this "
                        "rank's part (replica 1, shard 0)");
        must(store->finish());
        EXPECT_TRUE(
            std::isnan(must(store->gradient_norm(*rank.alone))));  // on both: they skip together
        must(store->drop_gradients());
        EXPECT_EQ(must(store->find_not_finite()), "");
        must(store->ready(1));
        must(store->ready(0));
        must(store->finish());
        EXPECT_EQ(must(store->gradient_norm(*rank.alone)), 0.0);
      });
    }
  }
}

// Pieces of all replicas are every parameter once; written and published, they are everybody's.
TEST(Store, PiecesCoverEveryParameterOnce) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
    for (const int zero : {0, 1, 2, 3}) {
      on_replicas(3, [&](Rank& rank) {
        const StorePtr store = rank.store({.zero = zero, .type = type});
        Floats covered(311);
        const std::int64_t before[] = {0, 204, 221, 306};  // elements of the parameters before
        for (const ParameterStore::Piece& piece : store->pieces()) {
          EXPECT_EQ(piece.m.elements(), piece.master.elements());
          EXPECT_EQ(piece.v.elements(), piece.master.elements());
          EXPECT_EQ(piece.master.type, DType::kFloat32);
          EXPECT_EQ(piece.is_owner, zero > 0 || rank.dp->rank() == 0);
          for (std::int64_t i = 0; i < piece.master.elements(); ++i) {
            const std::int64_t at = before[piece.number] + piece.first + i;
            if (piece.is_owner) covered[at] += 1;
            *static_cast<float*>(piece.master.at(0, i)) = static_cast<float>(at % 128);
          }
        }
        must(rank.dp->wait(
            must(rank.dp->all_reduce(view_of(covered.data(), 1, 311, DType::kFloat32),
                                     view_of(covered.data(), 1, 311, DType::kFloat32)))));
        EXPECT_EQ(covered, Floats(311, 1.0f));
        must(store->publish_parameters());
        for (int number = 0; number < 4; ++number) {
          must(store->acquire(number / 2));
          const Matrix got = read(*rank.compute, store->parameter(number));
          for (std::size_t i = 0; i < got.x.size(); ++i) {
            ASSERT_EQ(got.x[i],
                      static_cast<double>((before[number] + static_cast<std::int64_t>(i)) % 128));
          }
          store->release(number / 2);
        }
      });
    }
  }
}

// ---- Tensor-parallel shards

// The whole gradient of each parameter, made up; a rank's part of it.
double made_up(const ParameterSpec& p, std::int64_t row, std::int64_t col) {
  return static_cast<double>((p.number + 1) * (row + 1) + col);
}

// Norms of dp x tp ranks, where gradients are integers: exact in any order.
double exact_norm(const Model& model, double factor) {
  double sum = 0.0;
  for (const ParameterSpec& p : model.parameters()) {
    for (std::int64_t i = 0; i < p.rows; ++i) {
      for (std::int64_t j = 0; j < p.cols; ++j)
        sum += made_up(p, i, j) * made_up(p, i, j) * factor * factor;
    }
  }
  return std::sqrt(sum);
}

Model norm_model(bool is_sequence_parallel) {
  Model model(Loss::kMeanSquare);
  model.linear(6, 8, Split::kColumn).norm().relu().linear(8, 4, Split::kRow).linear(4, 3).norm();
  return model.sequence_parallel(is_sequence_parallel);
}

void check_norm(const MeshShape& shape, int zero, bool is_sequence_parallel) {
  on_ranks(shape.size(), [&](std::unique_ptr<Comm> world) {
    Mesh mesh = must(Mesh::create(std::move(world), shape));
    const auto compute = must(make_host_compute("ref"));
    const Model model = norm_model(is_sequence_parallel);
    const auto store = must(ParameterStore::create(mesh.dp(), mesh.tp(), *compute, model,
                                                   model.parameters(), {.zero = zero}));
    must(store->initialize(3));
    for (int layer = 2; layer >= 0; --layer) {
      for (const ParameterSpec& p : model.parameters()) {
        if (p.layer != layer) continue;
        const View g = must(store->gradient(p.number));
        const std::int64_t row0 = p.layout == Layout::kRows ? mesh.at().tp * g.rows : 0;
        const std::int64_t col0 = p.layout == Layout::kColumns ? mesh.at().tp * g.cols : 0;
        Matrix x(g.rows, g.cols);
        for (std::int64_t i = 0; i < g.rows; ++i) {
          for (std::int64_t j = 0; j < g.cols; ++j) {
            // Of a partial gradient shard 0 has seven more than the whole, and the last shard seven
            // less.
            const double extra = !p.gradient_is_partial ? 0.0
                                 : mesh.at().tp == 0    ? 7.0 + made_up(p, row0 + i, col0 + j)
                                                        : -7.0;
            x(i, j) = p.gradient_is_partial ? extra : made_up(p, row0 + i, col0 + j);
          }
        }
        write(*compute, x, g);
      }
      must(store->ready(layer));
    }
    must(store->finish());
    EXPECT_EQ(must(store->gradient_norm(mesh.model())), exact_norm(model, shape.dp))
        << to_string(shape) << "zero " << zero << " sequence parallel " << is_sequence_parallel;
  });
}

// What every shard has is counted once, sums over sequence-parallel shards are made, slices are
// added up.
TEST(GradientNorm, IsTheSameInEveryLayout) {
  for (const bool is_sequence_parallel : {false, true}) {
    for (const int zero : {0, 1, 2, 3}) {
      check_norm({1, 1, 1}, zero, false);
      check_norm({1, 1, 2}, zero, is_sequence_parallel);
      check_norm({2, 1, 2}, zero, is_sequence_parallel);
      check_norm({3, 1, 1}, zero, false);
    }
  }
}

// A seed for each layer and place: no two layers begin alike, and shards are parts of one matrix,
// not copies.
TEST(Lectures, ShardsBeginAsPartsOfOneMatrix) {
  const Model model = norm_model(false);
  Matrix whole;
  on_ranks(1, [&](std::unique_ptr<Comm> dp) {
    const auto compute = must(make_host_compute("ref"));
    const auto alone = make_count_comm(0, 1);
    const auto store =
        must(ParameterStore::create(*dp, *alone, *compute, model, model.parameters(), {}));
    must(store->initialize(3));
    whole = read(*compute, store->parameter(2));  // layer 0's weight
    EXPECT_NE(whole.x[0], read(*compute, store->parameter(4)).x[0]) << "another layer begins alike";
  });
  ASSERT_EQ(whole.rows, 6);
  ASSERT_EQ(whole.cols, 8);
  on_ranks(2, [&](std::unique_ptr<Comm> tp) {
    const auto compute = must(make_host_compute("ref"));
    const auto alone = make_count_comm(0, 1);
    const auto store =
        must(ParameterStore::create(*alone, *tp, *compute, model, model.parameters(), {}));
    must(store->initialize(3));
    expect_equal(read(*compute, store->parameter(2)), whole.part(0, 4 * tp->rank(), 6, 4));
  });
}

// ---- Compression

// One parameter of 1 x count; `gradient` of (rank, element) each step. Reduced gradients by step.
std::vector<Floats> compress(GradientHook& (*make)(std::unique_ptr<GradientHook>&), int n,
                             std::int64_t count, int steps,
                             const std::function<float(int, std::int64_t)>& gradient,
                             std::int64_t* bytes = nullptr) {
  std::vector<Floats> reduced;
  on_ranks(n, [&](std::unique_ptr<Comm> dp) {
    const auto compute = must(make_host_compute("ref"));
    const auto alone = make_count_comm(0, 1);
    std::unique_ptr<GradientHook> hook;
    StoreOptions options;
    options.hook = &make(hook);
    Model model(Loss::kMeanSquare);
    model.linear(1, count).without_bias();
    const auto store =
        must(ParameterStore::create(*dp, *alone, *compute, model, model.parameters(), options));
    must(store->initialize(1));
    dp->reset_traffic();
    for (int s = 0; s < steps; ++s) {
      const View g = must(store->gradient(0));
      for (std::int64_t i = 0; i < count; ++i)
        *static_cast<float*>(g.at(0, i)) = gradient(dp->rank(), i);
      must(store->ready(0));
      must(store->finish());
      Floats sum(static_cast<float*>(g.data), static_cast<float*>(g.data) + count);
      must(store->step(1.0));
      const std::uint64_t hash = must(store->hash());
      std::vector<double> seen(static_cast<std::size_t>(n), static_cast<double>(hash >> 12));
      std::vector<double> all(seen.size());
      must(dp->wait(must(dp->all_to_all(view_of(seen.data(), 1, n, DType::kFloat64),
                                        view_of(all.data(), 1, n, DType::kFloat64)))));
      EXPECT_EQ(all, seen) << "replicas differ";
      if (dp->rank() == 0) reduced.push_back(std::move(sum));
    }
    if (bytes != nullptr && dp->rank() == 0) {
      *bytes = dp->traffic().bytes() - steps * 8 * (n - 1);  // without the test's own
    }
  });
  return reduced;
}
GradientHook& bf16(std::unique_ptr<GradientHook>& owner) { return *(owner = make_bf16_hook()); }
GradientHook& int8(std::unique_ptr<GradientHook>& owner) { return *(owner = make_int8_hook()); }

TEST(Compression, Bf16IsExactWhereBf16IsAndSendsHalf) {
  std::int64_t bytes = 0;
  const auto reduced = compress(
      bf16, 3, 1000, 1,
      [](int rank, std::int64_t i) { return static_cast<float>((i % 16) * (rank + 1)); }, &bytes);
  for (std::int64_t i = 0; i < 1000; ++i)
    EXPECT_EQ(reduced[0][i], static_cast<float>((i % 16) * 6));
  EXPECT_EQ(bytes, 2 * 2 * (1002 / 3) * 2);  // 2 (n-1)/n of the padded vector, in 2 bytes
}

TEST(Compression, Bf16RoundsTheSumOnceMore) {
  // Summands 1, 2^-7 (half of bf16's last place of 2 is 2^-7) and 2^-9: rounded only after the sum.
  const float summands[] = {1.0f, 0x1p-7f, 0x1p-9f};
  const auto reduced =
      compress(bf16, 3, 300, 1, [&](int rank, std::int64_t) { return summands[rank]; });
  EXPECT_EQ(reduced[0][299], 1.0f + 0x1p-7f);  // 1 + 2^-7 + 2^-9, to 8 bits
}

// What a step loses, later ones add: the mean over steps comes as near as one rounding in all of
// them.
TEST(Compression, Int8FeedsItsErrorBack) {
  constexpr int kSteps = 50;
  const auto gradient = [](int rank, std::int64_t i) {
    return static_cast<float>(
        random_symmetric(9, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i)));
  };
  std::int64_t bytes = 0;
  const auto reduced = compress(int8, 3, 1000, kSteps, gradient, &bytes);
  double worst_first = 0.0, worst_mean = 0.0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const double exact = static_cast<double>(gradient(0, i)) + gradient(1, i) + gradient(2, i);
    double sum = 0.0;
    for (const Floats& step : reduced) sum += step[i];
    worst_first = std::max(worst_first, std::fabs(reduced[0][i] - exact));
    worst_mean = std::max(worst_mean, std::fabs(sum / kSteps - exact));
  }
  // A rounding is off by half a 127th of the block's largest: three of at most 1, one of at most 3,
  // and what residuals add to them.
  EXPECT_LE(worst_first, (3 * 1.0 + 3.0) / 2 / 127 * 1.01);
  EXPECT_GT(worst_first, 0.005);
  EXPECT_LE(worst_mean, (3 * 1.0 + 3.0) / 2 / 127 * 1.05 / kSteps);
  const std::int64_t part = 334, packed = 2 * 4 + part;  // two blocks, two scales
  EXPECT_EQ(bytes, kSteps * 2 * 2 * packed);
}

TEST(Compression, Int8LetsNaNThrough) {
  const auto reduced = compress(int8, 2, 600, 2, [](int rank, std::int64_t i) {
    return rank == 1 && i == 3 ? std::numeric_limits<float>::infinity() : 1.0f;
  });
  EXPECT_TRUE(std::isnan(reduced[0][3]));
  EXPECT_EQ(reduced[0][599], 2.0f);  // another block
}

}  // namespace
