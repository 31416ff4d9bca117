// What reduce.cpp asks of the vector kernels; nothing else includes it.
#pragma once

#include <cstddef>

#include "engine/reduce.hpp"

namespace treering {

// reduce() of elements [first_elem, first_elem + elems) for the operators kSum, kProd, kMin and
// kMax, whatever args.elems says; integers are not divided. Does not end in a store fence.
void fold_vectors(const ReduceArgs& args, std::size_t first_elem, std::size_t elems);

}  // namespace treering
