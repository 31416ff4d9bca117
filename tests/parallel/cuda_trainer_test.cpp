// Trainings on a GPU, here the emulator's: with a fixed order of all sums each has the losses,
// norms and parameters of the same training on the host, bit for bit. (A real GPU rounds the exp
// and log of the loss in its own way; all else it computes alike.)
#include "trainers.hpp"

namespace partest {
namespace {

Training of(const MeshShape& mesh, Model model) {
  Training t;
  t.model = std::move(model);
  t.options.mesh = mesh;
  t.options.rank_order = true;
  t.rows = 64;
  t.batch = 16;
  t.steps = 3;
  return t;
}

void expect_the_hosts_bits(Training t) {
  const Curve host = train(t);
  t.is_on_gpu = true;
  const Curve gpu = train(t);
  EXPECT_EQ(host.loss, gpu.loss);
  EXPECT_EQ(host.norm, gpu.norm);
  EXPECT_EQ(host.hash, gpu.hash);
  ASSERT_EQ(gpu.loss.size(), static_cast<std::size_t>(t.steps));
  EXPECT_LT(gpu.loss.back(), gpu.loss.front()) << "it learns";
}

class OnMeshes : public ::testing::TestWithParam<MeshShape> {};

TEST_P(OnMeshes, HasTheHostsBits) {
  Training t = of(GetParam(), megatron_model());
  t.options.micro_batch = GetParam().pp > 1 ? 4 : 0;
  expect_the_hosts_bits(t);
}
INSTANTIATE_TEST_SUITE_P(Layouts, OnMeshes,
                         ::testing::Values(MeshShape{1, 1, 1}, MeshShape{2, 1, 1},
                                           MeshShape{1, 2, 1}, MeshShape{1, 1, 2},
                                           MeshShape{2, 1, 2}),
                         [](const auto& given) {
                           const MeshShape& m = given.param;
                           return "dp" + std::to_string(m.dp) + "pp" + std::to_string(m.pp) + "tp" +
                                  std::to_string(m.tp);
                         });

class OnTypes : public ::testing::TestWithParam<DType> {};

TEST_P(OnTypes, HasTheHostsBits) {
  Training t = of({2, 1, 1}, Model(tr::par::Loss::kCrossEntropy));
  t.model.linear(16, 24).gelu().linear(24, 24).norm().relu().dropout(0.1).linear(24, 8);
  t.options.type = GetParam();
  t.options.micro_batch = 4;
  t.options.clip_norm = 0.5;
  t.options.check_finite = true;
  expect_the_hosts_bits(t);
}
INSTANTIATE_TEST_SUITE_P(All, OnTypes,
                         ::testing::Values(DType::kFloat64, DType::kFloat32, DType::kBFloat16,
                                           DType::kFloat16),
                         [](const auto& one) { return tr::par::name_of(one.param); });

TEST(OnGpu, ZeroHasTheHostsBits) {
  for (const int zero : {1, 2, 3}) {
    SCOPED_TRACE(zero);
    Training t = of({2, 1, 1}, megatron_model());
    t.options.zero = zero;
    t.options.bucket_bytes = t.options.first_bucket_bytes = 4096;
    expect_the_hosts_bits(t);
  }
}

TEST(OnGpu, SoHasAnInterleavedPipeline) {
  Training t = of({1, 2, 1}, megatron_model());
  t.options.schedule = "interleaved";
  t.options.stages_per_rank = 2;
  t.options.micro_batch = 4;
  expect_the_hosts_bits(t);
}

TEST(OnGpu, SoHaveSequenceParallelLayersAndSgdOnNoLabels) {
  Training t = of({1, 1, 2}, Model(tr::par::Loss::kMeanSquare));
  t.model.linear(16, 32, Split::kColumn).gelu().linear(32, 16, Split::kRow);
  t.model.sequence_parallel();
  t.options.optimizer.is_adamw = false;
  t.options.optimizer.sgd_lr = 0.1;
  t.classes = 16;
  expect_the_hosts_bits(t);
}

TEST(OnGpu, CublasIsClose) {
  Training t = of({2, 1, 1}, megatron_model());
  const Curve host = train(t);
  t.is_on_gpu = true;
  t.gemm = "cublas";
  EXPECT_LE(largest_difference(host.loss, train(t).loss), 1e-5);
}

}  // namespace
}  // namespace partest
