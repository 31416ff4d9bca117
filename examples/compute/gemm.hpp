// Matrix products behind one interface, so that exactness and speed can be had in turn.
//
// "ref": every output is summed over k = 0, 1, ... in this order, with one rounding per
// multiplication and one per addition, whatever m, n, the CPU or the GPU are. Splitting rows or
// columns of the output over ranks does not change a bit. "openblas" and, on a GPU, "cublas": many
// times faster. Their order depends on the shape and on the machine, so equal bits need equal
// shapes. OpenBLAS is set to one thread: the ranks are the parallelism.
#pragma once

#include <memory>
#include <string_view>

#include "compute/device.hpp"
#include "compute/matrix.hpp"

namespace compute {

enum class Transpose : bool { kNo, kYes };

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual const char* name() const = 0;
  // Are the bits of a row of c the same whatever number of rows is computed with it?
  virtual bool rows_are_independent() const = 0;
  // c = op(a) op(b), where op transposes if asked. All lie in the memory of the device that the
  // object was made for, and it takes its turn on that one's stream. c overlaps neither a nor b.
  // Any dimension may be 0.
  virtual void multiply(Transpose ta, Matrix<const float> a, Transpose tb, Matrix<const float> b,
                        Matrix<float> c) = 0;
};

// "ref", "openblas", "cublas", or "auto": the fastest that there is. TR_UNSUPPORTED if there is
// none of that name for this device.
tr::Result<std::unique_ptr<Gemm>> make_gemm(Device& device, std::string_view name);

}  // namespace compute
