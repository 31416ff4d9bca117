// A GPU's Compute and the treering backend on its streams; here it is the emulator's.
#include <cstdint>
#include <cuda_runtime.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "treering/parallel/comm.hpp"

#include "./ranks.hpp"
#include "matrices.hpp"

namespace {

using namespace partest;
using tr::par::Comm;
using tr::par::make_cuda_compute;
using Floats = std::vector<float>;

Tensor on_device(Compute& compute, const Floats& values) {
  Tensor x = empty_tensor(compute, 1, static_cast<std::int64_t>(values.size()), DType::kFloat32);
  must(compute.upload(values.data(), x.view()));
  return x;
}
Floats on_host(Compute& compute, const View& x) {
  Floats values(static_cast<std::size_t>(x.elements()));
  must(compute.download(x, values.data()));
  return values;
}

TEST(CudaCompute, RanksOfAHostTakeTurns) {
  int devices = 0, current = -1;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  ASSERT_GT(devices, 1);
  must(must(make_cuda_compute("ref", devices + 1))->synchronize());
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 1);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(CudaCompute, TakesTheFastestProductThatThereIs) {
  EXPECT_STREQ(must(make_cuda_compute("auto", 0))->name(), "cublas");
  EXPECT_STREQ(must(make_cuda_compute("ref", 0))->name(), "ref");
}

TEST(CudaCompute, PartsOfMatricesComeAndGo) {
  const auto compute = must(make_cuda_compute("ref", 0));
  const Tensor x = on_device(*compute, Floats(20, 1.0f));
  const View middle = tr::par::view_of(x.view().data, 4, 5, DType::kFloat32).columns(1, 2);
  const Floats values = {1, 2, 3, 4, 5, 6, 7, 8};
  must(compute->upload(values.data(), middle));
  EXPECT_EQ(on_host(*compute, middle), values);
  EXPECT_EQ(on_host(*compute, x.view()),
            (Floats{1, 1, 2, 1, 1, 1, 3, 4, 1, 1, 1, 5, 6, 1, 1, 1, 7, 8, 1, 1}));
}

TEST(CudaCompute, TooMuchMemoryIsAnErrorAndNothingElse) {
  const auto compute = must(make_cuda_compute("ref", 0));
  const auto made =
      Tensor::make(compute->memory(), Use::kBuffers, 1 << 30, 1 << 28, DType::kFloat32);
  EXPECT_NE(message_of(made).find("no memory for buffers"), std::string::npos);
  must(compute->synchronize());
}

// body(comm, compute): ranks that are threads, on one GPU.
void on_gpu_ranks(int size, const std::function<void(Comm&, Compute&)>& body) {
  on_ranks(size, [&](std::unique_ptr<Comm> comm) {
    const auto compute = must(make_cuda_compute("ref", 0));
    comm->set_compute_stream(*compute->stream());
    body(*comm, *compute);
    comm.reset();  // before its stream
  });
}

TEST(CudaComm, EveryOperationAmongThreeRanks) {
  on_gpu_ranks(3, [](Comm& comm, Compute& compute) {
    const int r = comm.rank(), left = (r + 2) % 3, right = (r + 1) % 3;
    const auto f = static_cast<float>(r);
    const auto expect = [&](tr::Result<Comm::Mark> mark, const Tensor& x, const Floats& values) {
      must(comm.wait(must(std::move(mark))));
      EXPECT_EQ(on_host(compute, x.view()), values);
    };
    const Tensor x = on_device(compute, {f, 10 * f}), got = on_device(compute, {0, 0});
    expect(comm.all_reduce(x.view(), got.view()), got, {3, 30});
    expect(comm.all_reduce(x.view(), got.view(), tr::par::Reduction::kMax), got, {2, 20});
    const Tensor wide = on_device(compute, {f, f + 1, f + 2, f + 3, f + 4, f + 5});
    const Tensor all = on_device(compute, Floats(6));
    expect(comm.reduce_scatter(wide.view(), got.view()), got, {3.0f + 6 * f, 6.0f + 6 * f});
    expect(comm.all_gather(got.view(), all.view()), all, {3, 6, 9, 12, 15, 18});
    expect(comm.all_to_all(wide.view(), all.view()), all,
           {2 * f, 2 * f + 1, 2 * f + 1, 2 * f + 2, 2 * f + 2, 2 * f + 3});
    expect(comm.broadcast(got.view(), 1), got, {9, 12});
    (void)must(comm.send(x.view(), right));
    const auto l = static_cast<float>(left);
    expect(comm.recv(got.view(), left), got, {l, 10 * l});
    must(comm.wait_all());
    must(comm.barrier());
  });
}

// Nobody waits on the host: what is computed, sent and computed next is put in order by events.
TEST(CudaComm, ComputesSendsAndComputesInThisOrder) {
  constexpr int kTimes = 20;
  on_gpu_ranks(2, [](Comm& comm, Compute& compute) {
    const Tensor x = on_device(compute, Floats(3000, 1.0f)), y = on_device(compute, Floats(3000));
    for (int i = 0; i < kTimes; ++i) {
      must(compute.scale(x.view(), comm.rank() == 0 ? 1.0 : 3.0));
      const Comm::Mark mark = must(comm.all_reduce(x.view(), y.view()));
      must(comm.wait(mark));
      must(compute.scale(y.view(), 0.25));
      must(compute.copy(y.view(), x.view()));  // (x + 3 x) / 4
    }
    EXPECT_EQ(on_host(compute, x.view()), Floats(3000, 1.0f));
  });
}

TEST(CudaComm, MarksOfManyCollectives) {
  on_gpu_ranks(2, [](Comm& comm, Compute& compute) {
    std::vector<Tensor> xs;
    std::vector<Comm::Mark> marks;
    for (int i = 0; i < 20; ++i) {
      xs.push_back(on_device(compute, Floats(1000, static_cast<float>(i + comm.rank()))));
      marks.push_back(must(comm.all_reduce(xs[i].view(), xs[i].view())));
    }
    for (const int i : {5, 3, 19, 0}) {
      must(comm.wait(marks[i]));
      EXPECT_EQ(on_host(compute, xs[i].view()), Floats(1000, static_cast<float>(2 * i + 1)));
    }
    must(comm.wait_all());
  });
}

// Traces and the like have their numbers there.
TEST(CudaComm, MemoryOfTheHostGoesAsEver) {
  on_gpu_ranks(2, [](Comm& comm, Compute&) {
    Floats x(100, static_cast<float>(comm.rank() + 1));
    const View view = tr::par::view_of(x.data(), 1, 100, DType::kFloat32);
    must(comm.wait(must(comm.all_reduce(view, view))));
    EXPECT_EQ(x, Floats(100, 3.0f));
  });
}

TEST(CudaComm, GroupsThatAreSplitOffInheritTheStream) {
  on_gpu_ranks(3, [](Comm& comm, Compute& compute) {
    const std::vector<int> colors = {0, 1, 0};
    const auto part = must(comm.split(colors));
    const Tensor x = on_device(compute, {1.0f + static_cast<float>(comm.rank())});
    const Tensor y = on_device(compute, {0.0f});
    must(part->wait(must(part->all_reduce(x.view(), y.view()))));
    EXPECT_EQ(on_host(compute, y.view()), Floats{comm.rank() == 1 ? 2.0f : 4.0f});
  });
}

}  // namespace
