#include "algos/oracle.hpp"

#include <algorithm>
#include <cstring>

#include "algos/checker.hpp"
#include "algos/oracle_numbers.hpp"
#include "algos/replay.hpp"

namespace treering::algos {
namespace {

using Bytes = std::vector<std::byte>;

Bytes scaled(const std::byte* input, const OracleCall& call, double scale, std::size_t elems) {
  Bytes result(elems * type_bytes(call.type));
  with_number(call.type, [&]<class Number>(Number) {
    using Folded = typename Number::Folded;
    for (std::size_t i = 0; i < elems; ++i) {
      const Folded value = Number::load(input + i * Number::kBytes);
      Number::store(result.data() + i * Number::kBytes,
                    static_cast<Folded>(value * static_cast<Folded>(scale)));
    }
  });
  return result;
}

Bytes folded_by_user(const std::vector<const std::byte*>& inputs, const OracleCall& call,
                     std::size_t elems) {
  Bytes result(inputs.front(), inputs.front() + elems * type_bytes(call.type));
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    call.combine(result.data(), inputs[i], elems, static_cast<int>(call.type), call.user);
  }
  return result;
}

Bytes folded(const std::vector<const std::byte*>& inputs, const OracleCall& call,
             std::uint32_t divisor, std::size_t elems) {
  if (call.op == RedOp::kUser) return folded_by_user(inputs, call, elems);
  // One input and nothing to divide is a move: its bits stay, those of a NaN too.
  if (inputs.size() == 1 && divisor == 1) {
    return Bytes(inputs.front(), inputs.front() + elems * type_bytes(call.type));
  }
  Bytes result(elems * type_bytes(call.type));
  with_number(call.type, [&]<class Number>(Number) {
    for (std::size_t i = 0; i < elems; ++i) {
      auto total = Number::load(inputs.front() + i * Number::kBytes);
      for (std::size_t j = 1; j < inputs.size(); ++j) {
        total = combine_numbers(call.op, total, Number::load(inputs[j] + i * Number::kBytes));
      }
      Number::store(result.data() + i * Number::kBytes, divide_number(total, divisor));
    }
  });
  return result;
}

}  // namespace

Result<Oracle> Oracle::make(const Program& program) {
  TR_ASSIGN_OR_RETURN(const Network network, Network::build(program));
  TR_RETURN_IF_ERROR(check_meaning(network));
  Replay replay(network);
  TR_RETURN_IF_ERROR(network.run(1, kUnlimitedSlots, 1, &replay));
  Oracle oracle(program.size(), program.chunks, replay.expressions());
  for (int rank = 0; rank < program.size(); ++rank) {
    for (int chunk = 0; chunk < program.chunks; ++chunk) {
      oracle.out_.push_back(replay.out(rank, chunk));
    }
  }
  return oracle;
}

const std::vector<std::byte>& Oracle::evaluate(Expr e, const OracleCall& call, const Leaves& leaf,
                                               std::size_t elems, Memo& memo) const {
  const auto known = memo.find(e);
  if (known != memo.end()) return known->second;
  const Expressions::Node& node = expressions_.node(e);
  Bytes result;
  if (node.leaf_rank >= 0) {
    const std::byte* input = leaf(node.leaf_rank, node.chunk);
    result = call.scales.empty() ? Bytes(input, input + elems * type_bytes(call.type))
                                 : scaled(input, call, call.scales[node.leaf_rank], elems);
  } else {
    std::vector<const std::byte*> inputs;
    for (const Expr child : expressions_.children(e)) {
      inputs.push_back(evaluate(child, call, leaf, elems, memo).data());
    }
    result = folded(inputs, call, node.finished ? call.divisor : 1, elems);
  }
  return memo.emplace(e, std::move(result)).first->second;
}

std::vector<std::byte> Oracle::evaluate(Expr e, const OracleCall& call, const Leaves& leaf,
                                        std::size_t elems) const {
  Memo memo;
  return evaluate(e, call, leaf, elems, memo);
}

void Oracle::apply(const OracleCall& call, std::span<const std::byte* const> inputs,
                   const OraclePartition& in_parts, std::span<std::byte* const> outputs,
                   const OraclePartition& out_parts) const {
  const std::size_t width = type_bytes(call.type);
  const Leaves leaf = [&](int rank, int chunk) {
    return inputs[rank] + in_parts(rank, chunk).offset * width;
  };
  Memo memo;  // an expression is about one chunk, so about one number of elements
  for (int rank = 0; rank < ranks_; ++rank) {
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      const Expr e = out(rank, chunk);
      if (e == kNoExpr) continue;
      const OraclePart part = out_parts(rank, chunk);
      const Bytes& bytes = evaluate(e, call, leaf, part.elems, memo);
      if (!bytes.empty())
        std::memcpy(outputs[rank] + part.offset * width, bytes.data(), bytes.size());
    }
  }
}

}  // namespace treering::algos
