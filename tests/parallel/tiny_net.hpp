// A network of two layers over a ParameterStore, with its passes written out: small enough to train
// in a test, odd enough that nothing divides evenly.
#pragma once

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "treering/parallel/parameters.hpp"
#include "treering/parallel/rng.hpp"

#include "matrices.hpp"

namespace partest {

inline constexpr std::int64_t kIn = 12, kHidden = 17, kOut = 5;  // 311 parameters, a prime number

inline tr::par::Model tiny_model() {
  tr::par::Model model(tr::par::Loss::kCrossEntropy);
  model.linear(kIn, kHidden).relu().linear(kHidden, kOut);
  return model;
}

using StorePtr = std::unique_ptr<tr::par::ParameterStore>;
inline StorePtr tiny_store(tr::par::Comm& dp, tr::par::Comm& tp, Compute& compute,
                           const tr::par::StoreOptions& options) {
  const tr::par::Model model = tiny_model();
  StorePtr store =
      must(tr::par::ParameterStore::create(dp, tp, compute, model, model.parameters(), options));
  must(store->initialize(7));
  return store;
}

// Rows [first, first + count) of endless data.
struct Rows {
  std::int64_t first = 0, count = 0;
};

class TinyNet {
 public:
  TinyNet(Compute& compute, tr::par::ParameterStore& store) : compute_(compute), store_(store) {}

  // Adds the gradients of the rows' losses / normalizer. Answers the sum of the losses.
  double pass(const Rows& rows, double normalizer, bool is_last) {
    enum { kW1, kB1, kW2, kB2 };
    using tr::par::Transpose;
    using tr::par::Update;
    Matrix x(rows.count, kIn);
    std::vector<std::int32_t> labels;
    for (std::int64_t i = 0; i < rows.count; ++i) {
      for (std::int64_t j = 0; j < kIn; ++j) {
        x(i, j) = tr::par::random_symmetric(1, tr::par::kInputStream, (rows.first + i) * kIn + j);
      }
      labels.push_back(static_cast<std::int32_t>((rows.first + i) * 7 % kOut));
    }
    const Tensor in = tensor_of(compute_, x, DType::kFloat32);
    const Tensor z = make(rows.count, kHidden), a = make(rows.count, kHidden);
    const Tensor y = make(rows.count, kOut), dy = make(rows.count, kOut),
                 da = make(rows.count, kHidden);

    must(store_.acquire(0));
    must(compute_.multiply(Transpose::kNo, Transpose::kNo, in.view(), store_.parameter(kW1),
                           z.view()));
    must(compute_.add_row(store_.parameter(kB1), z.view()));
    must(compute_.activate(tr::par::Activation::kRelu, z.view(), a.view()));
    store_.release(0);
    must(store_.acquire(1));
    must(compute_.multiply(Transpose::kNo, Transpose::kNo, a.view(), store_.parameter(kW2),
                           y.view()));
    must(compute_.add_row(store_.parameter(kB2), y.view()));
    const double loss =
        must(compute_.cross_entropy(y.view(), labels, normalizer, 1.0, dy.view())).loss_sum;

    must(compute_.multiply(Transpose::kYes, Transpose::kNo, a.view(), dy.view(),
                           must(store_.gradient(kW2)), Update::kAdd));
    must(compute_.sum_rows(dy.view(), must(store_.gradient(kB2)), Update::kAdd));
    must(compute_.multiply(Transpose::kNo, Transpose::kYes, dy.view(), store_.parameter(kW2),
                           da.view()));
    store_.release(1);
    if (is_last) must(store_.ready(1));
    must(compute_.activate_backward(tr::par::Activation::kRelu, z.view(), da.view(), da.view()));
    must(store_.acquire(0));
    must(compute_.multiply(Transpose::kYes, Transpose::kNo, in.view(), da.view(),
                           must(store_.gradient(kW1)), Update::kAdd));
    must(compute_.sum_rows(da.view(), must(store_.gradient(kB1)), Update::kAdd));
    store_.release(0);
    if (is_last) must(store_.ready(0));
    return loss;
  }

 private:
  Tensor make(std::int64_t rows, std::int64_t cols) {
    return must(Tensor::make(compute_.memory(), Use::kActivations, rows, cols, DType::kFloat32));
  }
  Compute& compute_;
  tr::par::ParameterStore& store_;
};

// All of this rank's masters, by place.
inline std::vector<float> masters(tr::par::ParameterStore& store) {
  std::vector<float> all;
  for (const auto& piece : store.pieces()) {
    const auto* x = static_cast<const float*>(piece.master.data);
    all.insert(all.end(), x, x + piece.master.elements());
  }
  return all;
}
// Of a store without sharded state.
inline std::vector<float> gradients(tr::par::ParameterStore& store, int count) {
  std::vector<float> all;
  for (int p = 0; p < count; ++p) {
    const View g = must(store.gradient(p));
    all.insert(all.end(), static_cast<const float*>(g.data),
               static_cast<const float*>(g.data) + g.elements());
  }
  return all;
}

// |a - b| / |b|
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace partest
