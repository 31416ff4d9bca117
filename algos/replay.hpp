// Replay: what every buffer chunk and every message holds, as an expression, while a network runs.
//
// One slice stands for all: slice j of a step meets slice j of every other step only (messages are
// numbered by step, then by slice), so k slices are k copies of one run with one slice.
#pragma once

#include <vector>

#include "algos/network.hpp"
#include "algos/symbolic.hpp"

namespace treering::algos {

// Observes a run of one slice and one round, and fails at the first step that
// - reads what has not been written, or a send buffer that the result has replaced (in place);
// - folds two chunks, an input twice, or a finished result; moves several inputs;
// - bears Last::kYes though its fold is not complete, or the collective does not fold;
// - receives another chunk than was sent, or with uneven chunks sends one whose size an end does
// not know.
class Replay : public Network::Observer {
 public:
  explicit Replay(const Network& network);

  Status on_step(const Network::Event& event) override;

  // What rank's receive buffer holds now.
  Expr out(int rank, int chunk) const { return out_[cell(rank, chunk)]; }
  const Expressions& expressions() const { return expressions_; }
  // The chunks of the messages sent on a link so far, kPublished for a publish.
  static constexpr int kPublished = -1;
  const std::vector<int>& sent(int link) const { return links_[link].chunks; }

 private:
  struct LinkLog {  // by message number
    std::vector<Expr> values;
    std::vector<int> chunks;
  };
  std::size_t cell(int rank, int chunk) const {
    return static_cast<std::size_t>(rank) * program_.chunks + chunk;
  }
  Result<Expr> read(const Network::Event& event, int input);
  Status receivable(const Operand& o, const Network::Message& m) const;
  Status sendable(const Operand& o) const;
  Result<Expr> compute(const Network::Event& event, const std::vector<Expr>& values);

  const Network& network_;
  const Program& program_;
  Expressions expressions_;
  std::vector<Expr> out_;  // kNoExpr: not written yet
  std::vector<LinkLog> links_;
};

// How many ranks, from 0 on, a finished fold on `rank` has folded.
int ranks_folded(const Program& program, int rank);

}  // namespace treering::algos
