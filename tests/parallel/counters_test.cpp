// V14: what every mode sends, to the byte and the message, on 2, 4 and 8 ranks: the table "worked
// numbers" (four layers of 1024 x 1024, 128 rows, fp32) and its formulas. Once by ranks that need
// not exist, once by real ones, of a net that is 32 wide.
#include <mutex>

#include "trainers.hpp"

namespace partest {
namespace {

using tr::par::Operation;
using tr::par::Traffic;

enum class Form { kGather, kPairs, kPairsByRows };

// A net of square layers without biases, and how it is trained.
struct Case {
  MeshShape mesh;
  int layers = 4;
  std::int64_t width = 1024, rows = 128;
  int micro_batches = 1;
  int zero = 0;
  Form form = Form::kPairs;
  const char* schedule = "1f1b";
  int stages_per_rank = 1;

  std::int64_t layer_bytes() const { return width * width * 4 / mesh.tp; }
  // Of one micro-batch, whole.
  std::int64_t message_bytes() const { return rows / mesh.dp / micro_batches * width * 4; }
  int layers_of_rank() const { return layers / mesh.pp; }
};

std::string name_of_case(const Case& c) {
  return name_of(c.mesh) + " zero " + std::to_string(c.zero) + " form " +
         std::to_string(static_cast<int>(c.form)) + " " + c.schedule;
}

Training training_of(const Case& c) {
  Training t;
  t.model = Model(tr::par::Loss::kMeanSquare);
  for (int l = 0; l < c.layers; ++l) {
    const bool is_row = c.form != Form::kGather && l % 2 == 1;
    t.model.linear(c.width, c.width, is_row ? Split::kRow : Split::kColumn).gelu();
    t.model.without_bias();
  }
  t.model.sequence_parallel(c.form == Form::kPairsByRows);
  t.options.mesh = c.mesh;
  t.options.zero = c.zero;
  t.options.micro_batches = c.micro_batches;
  t.options.schedule = c.schedule;
  t.options.stages_per_rank = c.stages_per_rank;
  t.options.bucket_bytes = t.options.first_bucket_bytes = c.layer_bytes();  // a layer each
  t.batch = c.rows;
  t.rows = c.rows;
  t.features = c.width;
  return t;
}

// What one rank sent in one step, by group.
struct Sent {
  Traffic dp, tp, forward, backward;
  std::int64_t bytes() const {
    return dp.bytes() + tp.bytes() + forward.bytes() + backward.bytes();
  }
};
Sent sent_by(Trainer& trainer, const Training& t) {
  train_steps(t, trainer, 0, 1, nullptr);  // before the first, ranks compare their schedules
  trainer.mesh().reset_traffic();
  train_steps(t, trainer, 0, 1, nullptr);
  tr::par::Mesh& mesh = trainer.mesh();
  // Losses and norms, three numbers of 8 bytes each at most.
  const std::int64_t others = mesh.world().traffic().bytes() + mesh.model().traffic().bytes();
  EXPECT_LE(others, 2 * 2 * 3 * 8 * (t.options.mesh.size() - 1));
  return {mesh.dp().traffic(), mesh.tp().traffic(), mesh.pp_forward().traffic(),
          mesh.pp_backward().traffic()};
}

Sent dry(const Case& c, int rank) {
  const Training t = training_of(c);
  auto compute = tr::par::make_host_compute("dry");
  auto trainer = Trainer::create(tr::par::make_count_comm(rank, c.mesh.size()), *compute.value(),
                                 t.model, t.options);
  if (!trainer) {
    ADD_FAILURE() << name_of_case(c) << ": " << trainer.error().message;
    return {};
  }
  return sent_by(*trainer.value(), t);
}

// ---- The formulas. A ring of n sends 2 (n-1) chunks for an all-reduce, n-1 for its halves; a
// chunk is an nth.
void expect_row(const Traffic& traffic, Operation operation, std::int64_t calls,
                std::int64_t chunks, std::int64_t chunk_bytes, const char* group) {
  const Traffic::Row& row = traffic[operation];
  const std::string what = std::string(group) + " " + tr::par::name_of(operation);
  EXPECT_EQ(row.calls, chunks == 0 ? row.calls : calls) << what;
  EXPECT_EQ(row.messages, calls * chunks) << what;
  EXPECT_EQ(row.bytes, calls * chunks * chunk_bytes) << what;
}

void expect_dp(const Traffic& dp, const Case& c) {
  const int n = c.mesh.dp, layers = c.layers_of_rank(), m = c.micro_batches;
  const std::int64_t chunk = c.layer_bytes() / n;
  const int gathers = c.zero == 0 ? 0 : c.zero == 3 ? 2 * m * layers : layers;
  expect_row(dp, Operation::kAllReduce, c.zero == 0 ? layers : 0, 2 * (n - 1), chunk, "dp");
  expect_row(dp, Operation::kReduceScatter, c.zero == 0 ? 0 : layers, n - 1, chunk, "dp");
  expect_row(dp, Operation::kAllGather, gathers, n - 1, chunk, "dp");
}

void expect_tp(const Traffic& tp, const Case& c, const tr::par::Coordinates& at) {
  const int n = c.mesh.tp, layers = c.layers_of_rank(), m = c.micro_batches;
  const bool is_first = at.pp == 0, is_last = at.pp + 1 == c.mesh.pp;
  const std::int64_t chunk = c.message_bytes() / n;
  const int pairs = layers / 2;
  int reduces = 0, gathers = 0, scatters = 0;
  switch (c.form) {
    case Form::kGather:  // outputs forward; gradients of inputs back, whole to the stage before
      gathers = layers;
      scatters = layers - 1;
      reduces = is_first ? 0 : 1;
      break;
    case Form::kPairs:
      reduces = 2 * pairs - is_first;
      break;
    case Form::kPairsByRows:  // x, dz and x again of each pair; the outputs
      gathers = 3 * pairs + is_last;
      scatters = 2 * pairs - is_first;
      break;
  }
  expect_row(tp, Operation::kAllReduce, m * reduces, 2 * (n - 1), chunk, "tp");
  expect_row(tp, Operation::kAllGather, m * gathers, n - 1, chunk, "tp");
  expect_row(tp, Operation::kReduceScatter, m * scatters, n - 1, chunk, "tp");
}

void expect_pp(const Sent& sent, const Case& c, const tr::par::Coordinates& at) {
  const int v = c.stages_per_rank, p = c.mesh.pp, m = c.micro_batches;
  const int forward = p == 1 ? 0 : m * (v - (at.pp + 1 == p));
  const int backward = p == 1 ? 0 : m * (v - (at.pp == 0));
  // By rows a rank sends its part.
  const std::int64_t bytes = c.message_bytes() / (c.form == Form::kPairsByRows ? c.mesh.tp : 1);
  expect_row(sent.forward, Operation::kSend, forward, 1, bytes, "forward");
  expect_row(sent.backward, Operation::kSend, backward, 1, bytes, "backward");
  EXPECT_EQ(sent.forward[Operation::kRecv].calls, backward);
  EXPECT_EQ(sent.backward[Operation::kRecv].calls, forward);
}

void expect_formulas(const Sent& sent, const Case& c, int rank) {
  const tr::par::Coordinates at = tr::par::coordinates_of(c.mesh, rank);
  SCOPED_TRACE(name_of_case(c) + " rank " + std::to_string(rank));
  expect_dp(sent.dp, c);
  expect_tp(sent.tp, c, at);
  expect_pp(sent, c, at);
  // Nothing else.
  EXPECT_EQ(sent.dp.bytes(), sent.dp[Operation::kAllReduce].bytes +
                                 sent.dp[Operation::kReduceScatter].bytes +
                                 sent.dp[Operation::kAllGather].bytes);
  EXPECT_EQ(sent.forward.bytes(), sent.forward[Operation::kSend].bytes);
  EXPECT_EQ(sent.backward.bytes(), sent.backward[Operation::kSend].bytes);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int n : {2, 4, 8}) {
    for (int zero = 0; zero <= 3; ++zero) {
      cases.push_back({.mesh = {n, 1, 1}, .zero = zero});
      cases.push_back({.mesh = {n, 1, 1}, .micro_batches = 4, .zero = zero});
    }
    for (const Form form : {Form::kGather, Form::kPairs, Form::kPairsByRows}) {
      cases.push_back({.mesh = {1, 1, n}, .form = form});
      cases.push_back({.mesh = {1, 1, n}, .micro_batches = 2, .form = form});
    }
    for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1"}) {
      cases.push_back({.mesh = {1, n, 1}, .layers = 8, .micro_batches = 4, .schedule = schedule});
    }
    cases.push_back({.mesh = {1, n, 1},
                     .layers = 16,
                     .micro_batches = 8,
                     .schedule = "interleaved",
                     .stages_per_rank = 2});
  }
  for (const MeshShape& mesh : {MeshShape{2, 2, 2}, MeshShape{2, 2, 1}, MeshShape{2, 1, 2},
                                MeshShape{1, 2, 2}, MeshShape{2, 1, 4}, MeshShape{1, 4, 2}}) {
    for (int zero = 0; zero <= (mesh.dp > 1 ? 3 : 0); ++zero) {
      for (const Form form : {Form::kGather, Form::kPairs, Form::kPairsByRows}) {
        cases.push_back(
            {.mesh = mesh, .layers = 8, .micro_batches = 2, .zero = zero, .form = form});
      }
    }
  }
  return cases;
}

TEST(V14, RanksThatDoNotExistSendWhatTheFormulasSay) {
  for (const Case& c : all_cases()) {
    for (int rank = 0; rank < c.mesh.size(); ++rank) expect_formulas(dry(c, rank), c, rank);
  }
}

TEST(V14, RealRanksSendWhatTheFormulasSay) {
  for (Case c : all_cases()) {
    c.width = 32;
    c.rows = 256;  // a chunk is whole cache lines
    const Training t = training_of(c);
    on_mesh(t, [&](Trainer& trainer, int rank) {
      const Sent sent = sent_by(trainer, t);
      expect_formulas(sent, c, rank);
    });
  }
}

TEST(V14, TheTableOfWorkedNumbers) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(dry({.mesh = {4, 1, 1}}, rank).bytes(), 25'165'824);
    EXPECT_EQ(dry({.mesh = {4, 1, 1}}, rank).dp[Operation::kAllReduce].messages, 24);
    for (const int zero : {1, 2}) {
      const Sent sent = dry({.mesh = {4, 1, 1}, .zero = zero}, rank);
      EXPECT_EQ(sent.bytes(), 25'165'824);
      EXPECT_EQ(sent.dp[Operation::kReduceScatter].bytes, 12'582'912);
      EXPECT_EQ(sent.dp[Operation::kAllGather].bytes, 12'582'912);
    }
    const Sent three = dry({.mesh = {4, 1, 1}, .zero = 3}, rank);
    EXPECT_EQ(three.bytes(), 37'748'736);
    EXPECT_EQ(three.dp[Operation::kAllGather].calls, 8);
    EXPECT_EQ(three.dp[Operation::kReduceScatter].calls, 4);
    EXPECT_EQ(dry({.mesh = {1, 1, 4}, .form = Form::kGather}, rank).bytes(), 2'752'512);
    EXPECT_EQ(dry({.mesh = {1, 1, 4}}, rank).bytes(), 2'359'296);
  }
  for (int rank = 0; rank < 2; ++rank) {
    const Sent sent = dry({.mesh = {1, 2, 1}, .micro_batches = 4}, rank);
    EXPECT_EQ(sent.forward.bytes(), rank == 0 ? 524'288 : 0);
    EXPECT_EQ(sent.backward.bytes(), rank == 0 ? 0 : 524'288);
    EXPECT_EQ(sent.forward[Operation::kSend].messages, rank == 0 ? 4 : 0);
  }
}

}  // namespace
}  // namespace partest
