#include "parallel/checks.hpp"

namespace tr::par {
namespace {

Error refused(const char* operation, const std::string& what) {
  return {TR_INVALID_ARGUMENT, std::string(operation) + ": " + what};
}

Status check_view(const char* operation, const View& view) {
  if (view.rows < 0 || view.cols < 0 || (view.rows > 1 && view.stride < view.cols)) {
    return refused(operation, "a matrix of " + shape_of(view) + " with rows " +
                                  std::to_string(view.stride) + " elements apart");
  }
  if (!view.is_empty() && view.data == nullptr) {
    return refused(operation, "a matrix of " + shape_of(view) + " without memory");
  }
  return {};
}

bool has_shape(const View& view, std::int64_t rows, std::int64_t cols) {
  return view.rows == rows && view.cols == cols;
}
bool fits_type(const View& view, DType type) {
  return view.type == type || view.type == accumulator_of(type);
}

}  // namespace

std::string shape_of(const View& view) {
  return std::to_string(view.rows) + " x " + std::to_string(view.cols) + " " + name_of(view.type);
}

Status check_views(const char* operation, std::initializer_list<View> views) {
  for (const View& view : views) {
    if (Status checked = check_view(operation, view); !checked) return checked;
  }
  return {};
}

Status check_same(const char* operation, std::initializer_list<View> views, bool one_type) {
  if (Status checked = check_views(operation, views); !checked) return checked;
  const View& first = *views.begin();
  for (const View& view : views) {
    if (!has_shape(view, first.rows, first.cols) || (one_type && view.type != first.type)) {
      return refused(operation, shape_of(first) + " and " + shape_of(view) + " must be the same");
    }
  }
  return {};
}

Status check_product(const Product& p) {
  if (Status checked = check_views("multiply", {p.a, p.b, p.c}); !checked) return checked;
  const bool a_is_turned = p.ta == Transpose::kYes, b_is_turned = p.tb == Transpose::kYes;
  const std::int64_t m = a_is_turned ? p.a.cols : p.a.rows, k = p.k();
  const std::int64_t b_k = b_is_turned ? p.b.cols : p.b.rows;
  const std::int64_t n = b_is_turned ? p.b.rows : p.b.cols;
  if (k != b_k || !has_shape(p.c, m, n) || p.b.type != p.a.type || !fits_type(p.c, p.a.type)) {
    return refused("multiply", "c (" + shape_of(p.c) + ") = a (" + shape_of(p.a) +
                                   (a_is_turned ? ", transposed" : "") + ") b (" + shape_of(p.b) +
                                   (b_is_turned ? ", transposed)" : ")") + ": they do not fit");
  }
  return {};
}

Status check_row(const char* operation, const View& row, const View& x) {
  if (Status checked = check_views(operation, {row, x}); !checked) return checked;
  if (!has_shape(row, 1, x.cols) || !fits_type(row, x.type)) {
    return refused(operation, "a row of " + shape_of(row) + " for " + shape_of(x));
  }
  return {};
}

Status check_norm(const View& x, const View& gamma, const View& beta, const View& y,
                  const View& stats) {
  const char* const kName = "layer_norm";
  if (Status checked = check_same(kName, {x, y}); !checked) return checked;
  if (Status checked = check_same(kName, {gamma, beta}); !checked) return checked;
  if (Status checked = check_row(kName, gamma, x); !checked) return checked;
  if (Status checked = check_view(kName, stats); !checked) return checked;
  if (gamma.type != x.type) return refused(kName, "gamma is " + shape_of(gamma));
  if (x.cols == 0 && x.rows > 0) return refused(kName, "rows without elements have no mean");
  if (!has_shape(stats, x.rows, 2) || stats.type != accumulator_of(x.type)) {
    return refused(kName, "statistics of " + shape_of(stats) + " for " + shape_of(x));
  }
  return {};
}

Status check_norm_backward(const View& x, const View& gamma, const View& stats, const View& dy,
                           const View& dx, const View& dgamma, const View& dbeta) {
  if (Status checked = check_same("layer_norm_backward", {x, dy, dx}); !checked) return checked;
  if (Status checked = check_norm(x, gamma, gamma, dx, stats); !checked) return checked;
  if (Status checked = check_same("layer_norm_backward", {dgamma, dbeta}); !checked) return checked;
  return check_row("layer_norm_backward", dgamma, x);
}

Status check_dropout(const DropoutKey& key, const View& x, const View& y) {
  if (Status checked = check_same("dropout", {x, y}); !checked) return checked;
  if (!(key.probability >= 0.0 && key.probability < 1.0)) {
    return refused("dropout", "a probability of " + std::to_string(key.probability) +
                                  ": it must be at least 0 and less than 1");
  }
  if (key.first_col + x.cols > key.global_cols) {
    return refused("dropout", "columns " + std::to_string(key.first_col) + " to " +
                                  std::to_string(key.first_col + x.cols) + " of " +
                                  std::to_string(key.global_cols));
  }
  return {};
}

Status check_loss(const char* operation, const View& outputs, double normalizer,
                  const View& doutputs) {
  if (!(normalizer > 0.0)) {
    return refused(operation, "a normalizer of " + std::to_string(normalizer));
  }
  if (doutputs.data == nullptr) return check_views(operation, {outputs});
  return check_same(operation, {outputs, doutputs});
}

Status check_labels(const View& logits, std::span<const std::int32_t> labels) {
  const char* const kName = "cross_entropy";
  if (static_cast<std::int64_t>(labels.size()) != logits.rows) {
    return refused(kName, std::to_string(labels.size()) + " labels for " + shape_of(logits));
  }
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] < 0 || labels[row] >= logits.cols) {
      return refused(kName, "row " + std::to_string(row) + " has label " +
                                std::to_string(labels[row]) + ", of " +
                                std::to_string(logits.cols) + " classes");
    }
  }
  return {};
}

Status check_step(const char* operation, std::initializer_list<View> views) {
  if (Status checked = check_same(operation, views); !checked) return checked;
  const View& first = *views.begin();
  if (first.rows != 1 || first.type != accumulator_of(first.type)) {
    return refused(operation, shape_of(first) + ": it must be one row of fp32 or fp64");
  }
  return {};
}

}  // namespace tr::par
