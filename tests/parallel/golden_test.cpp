// V18: the curves of PyTorch (tests/interop/make_golden.py) for the same net, data and options.
#include <cstdlib>
#include <fstream>

#include "digits.hpp"
#include "trainers.hpp"

namespace partest {
namespace {

struct Row {
  double loss, norm;
};
std::vector<Row> golden(const std::string& name) {
  const std::string path = std::string(TR_GOLDEN_DIR) + "/" + name + ".csv";
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  std::vector<Row> rows;
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "step,loss,gradient_norm");
  while (std::getline(in, line)) {
    Row row{};
    EXPECT_EQ(std::sscanf(line.c_str(), "%*d,%lf,%lf", &row.loss, &row.norm), 2) << line;
    rows.push_back(row);
  }
  EXPECT_EQ(rows.size(), 20u);
  return rows;
}

// Largest relative difference from the golden curve: of losses, of gradient norms.
Row compare(const std::string& name, const std::string& optimizer, const MeshShape& mesh,
            DType type, const std::string& gemm) {
  const Digits data(TR_DIGITS);
  Training t;
  t.model = Model(tr::par::Loss::kCrossEntropy);
  t.model.linear(64, 128, Split::kColumn).relu().linear(128, 128, Split::kRow).relu();
  t.model.linear(128, 10);
  t.gemm = gemm;
  t.options.mesh = mesh;
  t.options.type = type;
  t.options.optimizer.is_adamw = optimizer == "adamw";
  t.options.optimizer.adamw.lr = 1e-3;
  t.options.optimizer.sgd_lr = 0.1;
  t.options.optimizer.sgd_momentum = 0.9;
  const std::vector<Row> expected = golden(name);
  Row worst{0, 0};
  on_mesh(t, [&](Trainer& trainer, int rank) {
    std::vector<std::int64_t> order;
    std::size_t at = 0;
    int epoch = 0;
    for (const Row& row : expected) {
      if (at == order.size()) {
        order = tr::par::shuffled_rows(data.rows(), 1, epoch++);
        at = 0;
      }
      const std::size_t count = std::min<std::size_t>(128, order.size() - at);
      const auto report = trainer.step(data, std::span(order).subspan(at, count));
      ASSERT_TRUE(report) << report.error().message;
      at += count;
      if (rank != 0) continue;
      const double loss = report.value().score.loss_sum / static_cast<double>(count);
      ASSERT_TRUE(std::isfinite(loss) && std::isfinite(report.value().gradient_norm));
      worst.loss = std::max(worst.loss, std::abs(loss / row.loss - 1));
      worst.norm = std::max(worst.norm, std::abs(report.value().gradient_norm / row.norm - 1));
    }
  });
  return worst;
}

TEST(V18, SerialRunsFollowPyTorch) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    const std::string name = std::string("single-") + optimizer;
    const Row fp64 = compare(name + "-fp64", optimizer, {1, 1, 1}, DType::kFloat64, "ref");
    EXPECT_LE(fp64.loss, 1e-10) << optimizer;
    EXPECT_LE(fp64.norm, 1e-9) << optimizer;
    for (const char* gemm : {"ref", "openblas"}) {
      if (std::string(gemm) == "openblas" && !tr::par::have_openblas()) continue;
      const Row fp32 = compare(name + "-fp32", optimizer, {1, 1, 1}, DType::kFloat32, gemm);
      EXPECT_LE(fp32.loss, 1e-5) << optimizer << ' ' << gemm;
      EXPECT_LE(fp32.norm, 1e-4) << optimizer << ' ' << gemm;
    }
    const Row bf16 = compare(name + "-fp32", optimizer, {1, 1, 1}, DType::kBFloat16, "ref");
    EXPECT_LE(bf16.loss, 5e-2) << optimizer;
  }
}

// Of as many processes as the layout has ranks, or of four.
TEST(V18, EveryLayoutFollowsDistributedDataParallel) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    for (const MeshShape& mesh :
         {MeshShape{2, 1, 1}, MeshShape{1, 2, 1}, MeshShape{1, 1, 2}, MeshShape{4, 1, 1},
          MeshShape{2, 1, 2}, MeshShape{1, 3, 1}, MeshShape{8, 1, 1}, MeshShape{2, 2, 2}}) {
      const int processes = mesh.size() == 3 ? 4 : mesh.size();
      const std::string name = "ddp" + std::to_string(processes) + "-" + optimizer + "-fp32";
      const Row worst = compare(name, optimizer, mesh, DType::kFloat32, "ref");
      EXPECT_LE(worst.loss, 1e-5) << optimizer << ' ' << name_of(mesh);
      EXPECT_LE(worst.norm, 1e-4) << optimizer << ' ' << name_of(mesh);
    }
  }
}

// Mixed precision, with fp32 masters: llm.c's gate.
TEST(V18, Bf16FollowsInEveryLayout) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    for (const MeshShape& mesh : {MeshShape{2, 1, 1}, MeshShape{2, 1, 2}, MeshShape{2, 2, 2}}) {
      const std::string name = "ddp" + std::to_string(mesh.size()) + "-" + optimizer + "-fp32";
      const Row worst = compare(name, optimizer, mesh, DType::kBFloat16, "ref");
      EXPECT_LE(worst.loss, 5e-2) << optimizer << ' ' << name_of(mesh);
    }
  }
}

}  // namespace
}  // namespace partest
