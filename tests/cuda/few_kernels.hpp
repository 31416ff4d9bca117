// What programs with the kernels of few_kernels.cu must know of them.
#pragma once

namespace treering::cuda {

// Its window all-reduce sums so many times in one kernel, in place: each time a rank folds what
// another one has just stored. Between kernels even a missing barrier would have its time.
inline constexpr int kFewKernelsTurns = 24;

}  // namespace treering::cuda
