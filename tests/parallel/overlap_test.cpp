// What runs beside what: the order in which a stage multiplies, issues communication and waits for
// it.
#include <gtest/gtest.h>

#include "parallel/dry_compute.hpp"
#include "team.hpp"

namespace {

using namespace partest;
using tr::Status;
using tr::par::Loss;
using tr::par::Split;
using tr::par::Transpose;
using tr::par::Update;

using Log = std::vector<std::string>;

class LoggedCompute : public tr::par::DryCompute {
 public:
  explicit LoggedCompute(Log& log) : log_(log) {}
  Status multiply(Transpose ta, Transpose tb, const View& a, const View& b, const View& c,
                  Update update) override {
    log_.push_back(ta == Transpose::kYes ? "dW" : tb == Transpose::kYes ? "dx" : "forward");
    return DryCompute::multiply(ta, tb, a, b, c, update);
  }

 private:
  Log& log_;
};

// Rank 0 of two that moves nothing. Marks are numbered from the last clear() of the log.
class LoggedComm : public Comm {
 public:
  explicit LoggedComm(Log& log) : log_(log) {}
  const char* backend() const override { return "logged"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  bool is_dry() const override { return true; }
  Status wait(Mark mark) override {
    log_.push_back("wait " + issued_.at(mark));
    return {};
  }
  Status wait_all() override { return {}; }
  Status set_rank_order(bool) override { return {}; }

 protected:
  Status do_all_reduce(const View&, const View&, tr::par::Reduction) override {
    return note("reduce");
  }
  Status do_reduce_scatter(const View&, const View&) override { return note("scatter"); }
  Status do_all_gather(const View&, const View&) override { return note("gather"); }
  Status do_all_to_all(const View&, const View&) override { return note("exchange"); }
  Status do_broadcast(const View&, int) override { return note("broadcast"); }
  Status do_send(const View&, int) override { return note("send"); }
  Status do_recv(const View&, int) override { return note("recv"); }
  Status do_barrier() override { return note("barrier"); }
  tr::Result<std::unique_ptr<Comm>> do_split(int, int, int) override {
    return std::unique_ptr<Comm>();
  }

 private:
  Status note(const char* what) {
    issued_[last()] = what + std::to_string(++numbers_[what]);
    log_.push_back(issued_[last()]);
    return {};
  }
  Log& log_;
  std::map<Mark, std::string> issued_;
  std::map<std::string, int> numbers_;
};

struct Logs {
  Log forward, backward;
};
// Of a stage that begins with the model's second layer.
Logs logs_of(const Model& model, const StageOptions& options) {
  Log log;
  LoggedCompute compute(log);
  LoggedComm tp(log);
  TestStore store(compute, model, initial(model, 1), DType::kFloat32, 0, 2);
  const auto stage = must(Stage::create(model, 1, static_cast<int>(model.layers().size()), tp,
                                        compute, store, options));
  const std::int64_t rows = stage->boundary() == Layout::kRows ? 4 : 8;
  Spread y = must(stage->forward(
      {.rows = 8}, {empty_tensor(compute, rows, 8, DType::kFloat32), stage->boundary()}));
  Logs out{.forward = log, .backward = {}};
  log.clear();
  must(stage->backward(0, std::move(y), true));
  out.backward = log;
  return out;
}

Model pair(bool by_rows) {
  Model model(Loss::kMeanSquare);
  model.linear(8, 8).linear(8, 8, Split::kColumn).relu().linear(8, 8, Split::kRow);
  return model.sequence_parallel(by_rows);
}

TEST(Overlap, TheSumOfDxTravelsBesideDw) {
  EXPECT_EQ(logs_of(pair(false), {}).backward,
            (Log{"dx", "dW", "dx", "reduce2", "dW", "wait reduce2"}));
  EXPECT_EQ(logs_of(pair(false), {.overlap = false}).backward,
            (Log{"dx", "dW", "dx", "reduce2", "wait reduce2", "dW"}));
}

TEST(Overlap, RowsAreGatheredAgainBesideDx) {
  // gather4 is x, once more: gather1 was x, gather2 the outputs, gather3 dz of the row split.
  EXPECT_EQ(logs_of(pair(true), {}).backward,
            (Log{"gather3", "wait gather3", "dx", "dW", "gather4", "dx", "scatter2", "wait gather4",
                 "dW", "wait scatter2"}));
}

TEST(Overlap, APieceTravelsWhileTheNextIsMultiplied) {
  const Log forward = logs_of(pair(true), {.tp_chunks = 2}).forward;
  // Of two ranks, two products a piece.
  const Log gathered = {"gather1", "gather2",      "wait gather1", "forward",
                        "forward", "wait gather2", "forward",      "forward"};
  const Log scattered = {"forward", "forward",  "scatter1",      "forward",
                         "forward", "scatter2", "wait scatter1", "wait scatter2"};
  Log expected = gathered;
  expected.insert(expected.end(), scattered.begin(), scattered.end());
  expected.insert(expected.end(), {"gather3", "wait gather3"});  // the outputs
  EXPECT_EQ(forward, expected);
}

}  // namespace
