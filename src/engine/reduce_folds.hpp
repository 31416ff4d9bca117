// The two ways in which reduce() folds; nothing else includes this.
//
// Both do elements [first_elem, first_elem + elems) of what reduce() promises, whatever args.elems
// says, for the operators kSum, kProd, kMin and kMax. They do not divide integers and do not end in
// a store fence.
#pragma once

#include <cstddef>

#include "engine/reduce.hpp"

namespace treering {

// Element by element: for a few elements, and for CPUs without vectors that we know how to use.
void fold_scalars(const ReduceArgs& args, std::size_t first_elem, std::size_t elems);

// With the widest vectors of the CPU, and the same bits.
void fold_vectors(const ReduceArgs& args, std::size_t first_elem, std::size_t elems);

}  // namespace treering
