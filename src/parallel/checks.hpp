// What a Compute asks of its arguments, the same on every device. Errors name the operation and the
// shapes.
#pragma once

#include <initializer_list>
#include <string>

#include "treering/parallel/compute.hpp"

#include "parallel/gemm.hpp"

namespace tr::par {

std::string shape_of(const View& view);  // "3 x 4 fp32"

// Of each: no negative size, a stride that reaches over a row, memory where there are elements.
Status check_views(const char* operation, std::initializer_list<View> views);
// And all of one shape; of one type, too, if `one_type`.
Status check_same(const char* operation, std::initializer_list<View> views, bool one_type = true);
Status check_product(const Product& product);
// row: 1 x x.cols, of x's type or its accumulator's.
Status check_row(const char* operation, const View& row, const View& x);
Status check_norm(const View& x, const View& gamma, const View& beta, const View& y,
                  const View& stats);
Status check_norm_backward(const View& x, const View& gamma, const View& stats, const View& dy,
                           const View& dx, const View& dgamma, const View& dbeta);
Status check_dropout(const DropoutKey& key, const View& x, const View& y);
// doutputs: outputs' shape and type, or data == nullptr.
Status check_loss(const char* operation, const View& outputs, double normalizer,
                  const View& doutputs);
Status check_labels(const View& logits, std::span<const std::int32_t> labels);
// Flat, of one length, of one type that is its own accumulator.
Status check_step(const char* operation, std::initializer_list<View> views);

}  // namespace tr::par
