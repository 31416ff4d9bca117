#include "parallel/host_compute.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "parallel/checks.hpp"
#include "parallel/dry_compute.hpp"
#include "parallel/number.hpp"

namespace tr::par {
namespace {

// each(to_element, from_element) for the elements of two matrices of one shape and their types.
template <class To, class From, class Each>
void for_each_pair(const View& to, const View& from, const Each& each) {
  for (std::int64_t row = 0; row < to.rows; ++row) {
    To* x = row_of<To>(to, row);
    const From* y = row_of<From>(from, row);
    for (std::int64_t j = 0; j < to.cols; ++j) each(x[j], y[j]);
  }
}

void copy_rows(const void* from, std::size_t from_stride, void* to, std::size_t to_stride,
               const View& shape) {
  const std::size_t row_bytes = static_cast<std::size_t>(shape.cols) * size_of(shape.type);
  if (row_bytes == 0) return;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    std::memcpy(static_cast<std::byte*>(to) + static_cast<std::size_t>(row) * to_stride,
                static_cast<const std::byte*>(from) + static_cast<std::size_t>(row) * from_stride,
                row_bytes);
  }
}
std::size_t stride_bytes(const View& view) {
  return static_cast<std::size_t>(view.stride) * size_of(view.type);
}

}  // namespace

Status HostCompute::fill(const View& to, double value) {
  if (Status checked = check_views("fill", {to}); !checked) return checked;
  with_type(to.type, [&](auto element) {
    using T = decltype(element);
    const T stored = narrow<T>(static_cast<Accumulator<T>>(value));
    for (std::int64_t row = 0; row < to.rows; ++row) {
      std::fill_n(row_of<T>(to, row), to.cols, stored);
    }
  });
  return {};
}

Status HostCompute::copy(const View& from, const View& to) {
  if (Status checked = check_same("copy", {from, to}, false); !checked) return checked;
  if (from.type == to.type) {
    copy_rows(from.data, stride_bytes(from), to.data, stride_bytes(to), to);
    return {};
  }
  with_type(from.type, [&](auto from_element) {
    with_type(to.type, [&](auto to_element) {
      using From = decltype(from_element);
      using To = decltype(to_element);
      for_each_pair<To, From>(
          to, from, [](To& x, From y) { x = narrow<To>(static_cast<Accumulator<To>>(widen(y))); });
    });
  });
  return {};
}

Status HostCompute::add(const View& from, const View& to) {
  if (Status checked = check_same("add", {from, to}); !checked) return checked;
  with_type(to.type, [&](auto element) {
    using T = decltype(element);
    for_each_pair<T, T>(to, from, [](T& x, T y) { x = narrow<T>(widen(x) + widen(y)); });
  });
  return {};
}

Status HostCompute::scale(const View& x, double factor) {
  if (Status checked = check_views("scale", {x}); !checked) return checked;
  with_type(x.type, [&](auto element) {
    using T = decltype(element);
    const auto by = static_cast<Accumulator<T>>(factor);
    for_each_pair<T, T>(x, x, [by](T& to, T from) { to = narrow<T>(widen(from) * by); });
  });
  return {};
}

Status HostCompute::upload(const void* from, const View& to) {
  if (Status checked = check_views("upload", {to}); !checked) return checked;
  copy_rows(from, static_cast<std::size_t>(to.cols) * size_of(to.type), to.data, stride_bytes(to),
            to);
  return {};
}

Status HostCompute::download(const View& from, void* to) {
  if (Status checked = check_views("download", {from}); !checked) return checked;
  copy_rows(from.data, stride_bytes(from), to,
            static_cast<std::size_t>(from.cols) * size_of(from.type), from);
  return {};
}

Status HostCompute::multiply(Transpose ta, Transpose tb, const View& a, const View& b,
                             const View& c, Update update) {
  const Product product{ta, tb, a, b, c, update};
  if (Status checked = check_product(product); !checked) return checked;
  gemm_->multiply(product);
  return {};
}

Status HostCompute::add_row(const View& row, const View& x) {
  if (Status checked = check_row("add_row", row, x); !checked) return checked;
  with_type(x.type, [&](auto element) {
    with_type(row.type, [&](auto row_element) {
      using T = decltype(element);
      using R = decltype(row_element);
      const R* summand = row_of<R>(row, 0);
      for (std::int64_t i = 0; i < x.rows; ++i) {
        T* to = row_of<T>(x, i);
        for (std::int64_t j = 0; j < x.cols; ++j) {
          to[j] = narrow<T>(widen(to[j]) + static_cast<Accumulator<T>>(widen(summand[j])));
        }
      }
    });
  });
  return {};
}

Status HostCompute::sum_rows(const View& x, const View& row, Update update) {
  if (Status checked = check_row("sum_rows", row, x); !checked) return checked;
  with_type(x.type, [&](auto element) {
    using T = decltype(element);
    std::vector<Accumulator<T>> sums(static_cast<std::size_t>(x.cols));
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const T* from = row_of<T>(x, i);
      for (std::int64_t j = 0; j < x.cols; ++j) sums[j] += widen(from[j]);
    }
    store_sums(sums.data(), x.cols, row, update);
  });
  return {};
}

Result<std::unique_ptr<Compute>> make_host_compute(std::string_view name) {
  if (name == "dry") return std::unique_ptr<Compute>(std::make_unique<DryCompute>());
  if (name == "ref") {
    return std::unique_ptr<Compute>(std::make_unique<HostCompute>(make_reference_gemm()));
  }
  if (name != "openblas") {
    return Error{TR_INVALID_ARGUMENT, "there are no matrix products named '" + std::string(name) +
                                          "': ref, openblas, dry"};
  }
  std::unique_ptr<Gemm> openblas = make_openblas_gemm();
  if (openblas == nullptr) {
    return Error{TR_UNSUPPORTED,
                 "openblas: OpenBLAS was not found when this library was built (Debian: "
                 "libopenblas-dev); 'ref' is always there"};
  }
  return std::unique_ptr<Compute>(std::make_unique<HostCompute>(std::move(openblas)));
}

}  // namespace tr::par
