// The replay oracle: the exact bits that an algorithm must give, computed serially from its
// expressions.
//
// Scalar, slow and independent of the engine: it shares no code with the reduction kernels, whose
// rules (engine/reduce.hpp) it states again. A fold widens 8- and 16-bit floats to float32, folds
// from left to right and rounds once at its end; between folds values are kept in the element type.
// A pre-multiplied input is rounded to the element type before it is folded. The division of avg
// belongs to the finished fold, before its rounding. For tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "algos/program.hpp"
#include "algos/symbolic.hpp"
#include "core/status.hpp"
#include "core/types.hpp"

namespace treering::algos {

// What a call asks for, besides its vectors.
struct OracleCall {
  Type type = Type::kFloat32;
  RedOp op = RedOp::kSum;      // ignored by collectives that move
  std::vector<double> scales;  // pre-multiplied sum: each rank's factor; empty: none
  std::uint32_t divisor = 1;   // avg: the number of ranks
  // RedOp::kUser: acc[i] = acc[i] op in[i], as tr_op_create has it.
  void (*combine)(void* acc, const void* in, std::size_t count, int type, void* user) = nullptr;
  void* user = nullptr;
};

// Where a chunk lies in a buffer, in elements.
struct OraclePart {
  std::uint64_t offset = 0;
  std::uint64_t elems = 0;
};
using OraclePartition = std::function<OraclePart(int rank, int chunk)>;

class Oracle {
 public:
  // Fails, with the reason, for a program that is not a correct one.
  static Result<Oracle> make(const Program& program);

  // kNoExpr: the rank receives nothing there.
  Expr out(int rank, int chunk) const { return out_[rank * chunks_ + chunk]; }
  const Expressions& expressions() const { return expressions_; }

  // The elements of `e`; leaf(rank, chunk) points at the `elems` elements of that input.
  using Leaves = std::function<const std::byte*(int rank, int chunk)>;
  std::vector<std::byte> evaluate(Expr e, const OracleCall& call, const Leaves& leaf,
                                  std::size_t elems) const;

  // Whole vectors: fills the received chunks of outputs[rank] from the ranks' inputs; other bytes
  // stay. In place: hand in copies of the inputs.
  void apply(const OracleCall& call, std::span<const std::byte* const> inputs,
             const OraclePartition& in_parts, std::span<std::byte* const> outputs,
             const OraclePartition& out_parts) const;

 private:
  using Memo = std::unordered_map<Expr, std::vector<std::byte>>;

  explicit Oracle(int ranks, int chunks, Expressions expressions)
      : ranks_(ranks), chunks_(chunks), expressions_(std::move(expressions)) {}
  const std::vector<std::byte>& evaluate(Expr e, const OracleCall& call, const Leaves& leaf,
                                         std::size_t elems, Memo& memo) const;

  int ranks_;
  int chunks_;
  Expressions expressions_;
  std::vector<Expr> out_;  // ranks_ x chunks_
};

}  // namespace treering::algos
