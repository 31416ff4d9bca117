#include "treering/parallel/layout.hpp"

#include <string>

namespace tr::par {
namespace {

Error does_not_divide(int ranks, std::int64_t count, const char* what) {
  return {TR_INVALID_ARGUMENT, std::to_string(ranks) + " tensor-parallel ranks cannot share " +
                                   std::to_string(count) + " " + what + " evenly"};
}

}  // namespace

const char* name_of(Layout layout) {
  constexpr const char* kNames[] = {"replicated", "columns", "rows", "partial"};
  return kNames[static_cast<int>(layout)];
}

Result<LocalShape> local_shape(Layout layout, std::int64_t rows, std::int64_t cols, int ranks) {
  if (layout == Layout::kColumns) {
    if (cols % ranks != 0) return does_not_divide(ranks, cols, "columns");
    return LocalShape{rows, cols / ranks};
  }
  if (layout == Layout::kRows) {
    if (rows % ranks != 0) return does_not_divide(ranks, rows, "rows");
    return LocalShape{rows / ranks, cols};
  }
  return LocalShape{rows, cols};
}

std::int64_t relayout_bytes(Layout from, Layout to, std::int64_t rows, std::int64_t cols,
                            DType type, int ranks) {
  if (from == to || from == Layout::kReplicated) return 0;
  const std::int64_t whole = rows * cols * static_cast<std::int64_t>(size_of(type));
  if (from == Layout::kPartial && to == Layout::kReplicated) {
    return 2 * (ranks - 1) * whole / ranks;
  }
  const bool is_gather = to == Layout::kReplicated, is_scatter = from == Layout::kPartial;
  const std::int64_t part = whole / ranks;
  return is_gather || is_scatter ? (ranks - 1) * part : (ranks - 1) * (part / ranks);
}

}  // namespace tr::par
