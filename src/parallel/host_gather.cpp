#include "parallel/host_gather.hpp"

#include "parallel/try.hpp"

namespace tr::par {

Result<std::vector<double>> gather_over(Comm& comm, Compute& compute,
                                        std::span<const double> mine) {
  const auto count = static_cast<std::int64_t>(mine.size());
  const int n = comm.size();
  std::vector<double> all;
  if (count == 0 || n == 1 || comm.is_dry() || compute.is_dry()) {
    for (int q = 0; q < n; ++q) all.insert(all.end(), mine.begin(), mine.end());
    return all;
  }
  TRY_ASSIGN(const Tensor x,
             Tensor::make(compute.memory(), Use::kBuffers, 1, n * count, DType::kFloat64));
  const View part = x.view().columns(comm.rank() * count, count);
  TRY(compute.upload(mine.data(), part));
  TRY_ASSIGN(const Comm::Mark mark, comm.all_gather(part, x.view()));
  TRY(comm.wait(mark));
  all.resize(mine.size() * static_cast<std::size_t>(n));
  TRY(compute.download(x.view(), all.data()));
  TRY(comm.wait(mark));  // on a device only now done: has it failed?
  return all;
}

Result<double> ordered_sum_over(Comm& comm, Compute& compute, double mine) {
  TRY_ASSIGN(const std::vector<double> all, gather_over(comm, compute, {&mine, 1}));
  double sum = 0.0;
  for (const double one : all) sum += one;
  return sum;
}

}  // namespace tr::par
