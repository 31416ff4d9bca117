// Memory: what is counted, what is given out.
#include <cstdint>
#include <gtest/gtest.h>

#include "team.hpp"

namespace {

using namespace partest;

TEST(Memory, CountsByUseAndRemembersThePeak) {
  for (const char* name : {"ref", "dry"}) {
    const auto compute = must(tr::par::make_host_compute(name));
    tr::par::Memory& memory = compute->memory();
    {
      const Tensor a = must(Tensor::make(memory, Use::kParameters, 10, 10, DType::kFloat32));
      {
        const Tensor b = must(Tensor::make(memory, Use::kActivations, 3, 5, DType::kFloat64));
        EXPECT_EQ(memory.bytes(Use::kParameters), 400);
        EXPECT_EQ(memory.bytes(Use::kActivations), 120);
      }
      EXPECT_EQ(memory.bytes(), 400);
      EXPECT_EQ(memory.peak_bytes(), 520);
      memory.reset_peak();
      EXPECT_EQ(memory.peak_bytes(), 400);
    }
    EXPECT_EQ(memory.bytes(), 0);
  }
}

TEST(Memory, BlocksAreAlignedAndComeBack) {
  const auto compute = must(tr::par::make_host_compute("ref"));
  for (const std::int64_t elements : {1, 1000, 1 << 20}) {
    Tensor a = must(Tensor::make(compute->memory(), Use::kBuffers, 1, elements, DType::kFloat32));
    const void* at = a.view().data;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) % 64, 0u);
    const Tensor b =
        must(Tensor::make(compute->memory(), Use::kBuffers, 1, elements, DType::kFloat32));
    EXPECT_NE(b.view().data, at);
    a = Tensor();
    const Tensor again =
        must(Tensor::make(compute->memory(), Use::kBuffers, 1, elements, DType::kFloat32));
    EXPECT_EQ(again.view().data, at);
  }
}

TEST(Memory, LongParametersAndGradientsMayBeRegistered) {
  on_ranks(2, [](Comm& comm) {
    const auto compute = must(tr::par::make_host_compute("ref"));
    for (const Use use : {Use::kParameters, Use::kGradients}) {
      for (const std::int64_t elements : {16384, 1000000}) {  // kRegistrableBytes, and more
        const Tensor a = must(Tensor::make(compute->memory(), use, 1, elements, DType::kFloat32));
        const tr::par::Registration held = must(comm.register_memory(a.view()));
        EXPECT_NE(held, nullptr);
      }
    }
  });
}

// A dry run plans for machines that do not exist.
TEST(Memory, DryMemoryHasNoEnd) {
  const auto compute = must(tr::par::make_host_compute("dry"));
  const Tensor huge =
      must(Tensor::make(compute->memory(), Use::kParameters, 1 << 20, 1 << 20, DType::kFloat32));
  EXPECT_EQ(compute->memory().bytes(Use::kParameters), std::int64_t{1} << 42);
  EXPECT_TRUE(compute->fill(huge.view(), 1.0).ok());
}

}  // namespace
