// Matrix products of the host (compute.hpp: multiply). Shapes and types were checked.
#pragma once

#include <memory>

#include "treering/parallel/compute.hpp"

namespace tr::par {

struct Product {
  Transpose ta = Transpose::kNo, tb = Transpose::kNo;
  View a, b, c;
  Update update = Update::kOverwrite;

  std::int64_t m() const { return c.rows; }
  std::int64_t n() const { return c.cols; }
  std::int64_t k() const { return ta == Transpose::kYes ? a.rows : a.cols; }
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual const char* name() const = 0;
  virtual bool outputs_are_independent() const = 0;
  virtual void multiply(const Product& product) = 0;
};

std::unique_ptr<Gemm> make_reference_gemm();
std::unique_ptr<Gemm> make_openblas_gemm();  // nullptr: this build has none

// c = or += sums, a contiguous m x n matrix of c's accumulator type.
void store_sums(const void* sums, std::int64_t sums_stride, const View& c, Update update);

}  // namespace tr::par
