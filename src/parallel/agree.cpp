#include "parallel/agree.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace tr::par {
namespace {

constexpr std::int64_t kTextBytes = 512;  // of an error that other ranks repeat

// Blocks until `operation` on `x` is done, then brings x back.
template <class Operation>
Status run(Comm& comm, Compute& compute, const Tensor& x, void* host, Operation operation) {
  if (Status up = compute.upload(host, x.view()); !up) return up;
  Result<Comm::Mark> mark = operation(x.view());
  if (!mark) return mark.error();
  if (Status waited = comm.wait(mark.value()); !waited) return waited;
  if (Status down = compute.download(x.view(), host); !down) return down;
  return comm.wait(mark.value());  // on a device only now done: has it failed?
}

std::string said_by(int rank, const std::string& message) {
  return "rank " + std::to_string(rank) + ": " + message;
}

}  // namespace

Status sum_over(Comm& comm, Compute& compute, std::span<double> values) {
  Result<Tensor> x = Tensor::make(compute.memory(), Use::kBuffers, 1,
                                  static_cast<std::int64_t>(values.size()), DType::kFloat64);
  if (!x) return x.error();
  return run(comm, compute, x.value(), values.data(),
             [&](const View& v) { return comm.all_reduce(v, v); });
}

Status agree(Comm& comm, Compute& compute, const Status& mine) {
  Result<Tensor> who = Tensor::make(compute.memory(), Use::kBuffers, 1, 1, DType::kFloat64);
  if (!who) return who.error();
  double failed = mine ? -1.0 : comm.rank();
  if (Status s = run(comm, compute, who.value(), &failed,
                     [&](const View& v) { return comm.all_reduce(v, v, Reduction::kMax); });
      !s) {
    return s;
  }
  if (failed < 0 || compute.is_dry()) return mine;
  // The code and the text, as elements that are only moved.
  std::array<char, kTextBytes> text = {};
  const int root = static_cast<int>(failed);
  if (root == comm.rank()) {
    text[0] = static_cast<char>(mine.error().code);
    const std::string& message = mine.error().message;
    std::memcpy(&text[1], message.data(), std::min<std::size_t>(message.size(), kTextBytes - 2));
  }
  Result<Tensor> words =
      Tensor::make(compute.memory(), Use::kBuffers, 1, kTextBytes / 8, DType::kFloat64);
  if (!words) return words.error();
  if (Status s = run(comm, compute, words.value(), text.data(),
                     [&](const View& v) { return comm.broadcast(v, root); });
      !s) {
    return s;
  }
  if (!mine) return Error{mine.error().code, said_by(comm.rank(), mine.error().message)};
  return Error{static_cast<tr_result_t>(text[0]), said_by(root, &text[1])};
}

}  // namespace tr::par
