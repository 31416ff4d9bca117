// Matrix products behind one interface, so that exactness and speed can be had in turn.
//
// "ref": every output is summed over k = 0, 1, ... in this order, with one rounding per
// multiplication and one per addition, whatever m, n and the CPU are. Splitting rows or columns of
// the output over ranks does not change a bit. "openblas": several times faster. Its order depends
// on the shape and on its number of threads, so equal bits need equal shapes. It is set to one
// thread: the ranks are the parallelism.
#pragma once

#include <memory>
#include <string_view>

#include "treering/result.hpp"

namespace train {

enum class Transpose : bool { kNo, kYes };

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual const char* name() const = 0;
  // Are the bits of a row of c the same whatever number of rows is computed with it?
  virtual bool rows_are_independent() const = 0;
  // c = op(a) op(b), where op(a) is m x k, op(b) is k x n, c is m x n and op transposes if asked.
  // All are row-major without gaps: a transposed a is stored as k x m. c overlaps neither a nor b.
  // Any of m, n, k may be 0.
  virtual void multiply(Transpose ta, Transpose tb, int m, int n, int k, const float* a,
                        const float* b, float* c) = 0;
};

// "ref" or "openblas"; TR_UNSUPPORTED if this build has no OpenBLAS. An object serves one thread.
tr::Result<std::unique_ptr<Gemm>> make_gemm(std::string_view name);
bool have_openblas();

}  // namespace train
