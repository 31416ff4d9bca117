// A blocking call allocates nothing once a call of its shape has been made.
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace {
// Of the thread that counts: another's are its own affair.
thread_local long t_allocations = -1;  // -1: not counting

void* counted(std::size_t bytes) {
  if (t_allocations >= 0) ++t_allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
}  // namespace

// All that the library allocates by hand goes through these.
void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace treering::test {
namespace {

constexpr int kRanks = 3;
// A wait of more than 2 ms looks at its peers and may allocate: on a busy machine not every call is
// without.
constexpr int kCalls = 20;

struct Buffers {
  explicit Buffers(std::uint64_t count)
      : in(count * kRanks, 1), out(count * kRanks), counts(kRanks, count), displs(kRanks) {
    for (int r = 0; r < kRanks; ++r) displs[r] = r * count;
  }
  std::vector<float> in, out;
  std::vector<std::uint64_t> counts, displs;
};

using CallFn = std::function<tr_result_t(tr_comm_t, Buffers&, std::uint64_t)>;

std::vector<std::pair<std::string, CallFn>> calls() {
  constexpr auto f32 = TR_FLOAT32;
  return {
      {"all_reduce",
       [](tr_comm_t c, Buffers& b, std::uint64_t n) {
         return tr_all_reduce(b.in.data(), b.out.data(), n, f32, TR_SUM, c, nullptr);
       }},
      {"reduce",
       [](tr_comm_t c, Buffers& b, std::uint64_t n) {
         return tr_reduce(b.in.data(), b.out.data(), n, f32, TR_SUM, 0, c, nullptr);
       }},
      {"broadcast",
       [](tr_comm_t c, Buffers& b, std::uint64_t n) {
         return tr_broadcast(b.in.data(), b.out.data(), n, f32, 0, c, nullptr);
       }},
      {"all_gather",
       [](tr_comm_t c, Buffers& b, std::uint64_t n) {
         return tr_all_gather(b.in.data(), b.out.data(), n, f32, c, nullptr);
       }},
      {"reduce_scatter",
       [](tr_comm_t c, Buffers& b, std::uint64_t n) {
         return tr_reduce_scatter(b.in.data(), b.out.data(), n, f32, TR_SUM, c, nullptr);
       }},
      {"all_to_all",
       [](tr_comm_t c, Buffers& b, std::uint64_t n) {
         return tr_all_to_all(b.in.data(), b.out.data(), n, f32, c, nullptr);
       }},
      {"gather",
       [](tr_comm_t c, Buffers& b, std::uint64_t n) {
         return tr_gather(b.in.data(), b.out.data(), n, f32, 0, c, nullptr);
       }},
      {"scatter",
       [](tr_comm_t c, Buffers& b, std::uint64_t n) {
         return tr_scatter(b.in.data(), b.out.data(), n, f32, 0, c, nullptr);
       }},
      {"scan",
       [](tr_comm_t c, Buffers& b, std::uint64_t n) {
         return tr_scan(b.in.data(), b.out.data(), n, f32, TR_SUM, c, nullptr);
       }},
      {"barrier", [](tr_comm_t c, Buffers&, std::uint64_t) { return tr_barrier(c, nullptr); }},
      {"all_gather_v",
       [](tr_comm_t c, Buffers& b, std::uint64_t) {
         return tr_all_gather_v(b.in.data(), b.out.data(), b.counts.data(), b.displs.data(), f32, c,
                                nullptr);
       }},
      {"reduce_scatter_v",
       [](tr_comm_t c, Buffers& b, std::uint64_t) {
         return tr_reduce_scatter_v(b.in.data(), b.out.data(), b.counts.data(), f32, TR_SUM, c,
                                    nullptr);
       }},
      {"all_to_all_v",
       [](tr_comm_t c, Buffers& b, std::uint64_t) {
         return tr_all_to_all_v(b.in.data(), b.counts.data(), b.displs.data(), b.out.data(),
                                b.counts.data(), b.displs.data(), f32, c, nullptr);
       }},
  };
}

TEST(Allocations, NoneInABlockingCallThatWasMadeBefore) {
  for (const auto& [name, call] : calls()) {
    for (const std::uint64_t count : {2, 1000, 50'000}) {
      const std::string wrong = run_ranks(
          Mode::kThreads, kRanks, [&call, count](tr_comm_t comm, int, int) -> std::string {
            Buffers buffers(count);
            long fewest = -1;
            for (int i = 0; i < 3 + kCalls; ++i) {
              t_allocations = 0;
              const tr_result_t r = call(comm, buffers, count);
              const long allocations = std::exchange(t_allocations, -1);
              if (r != TR_SUCCESS) return failure("call", r);
              if (i >= 3 && (fewest < 0 || allocations < fewest)) fewest = allocations;
            }
            return fewest == 0 ? "" : "at least " + std::to_string(fewest) + " in each call";
          });
      EXPECT_EQ(wrong, "") << name << ", " << count << " elements";
    }
  }
}

TEST(Allocations, AreSeenByThisTest) {
  t_allocations = 0;
  const std::vector<int> one(5);
  EXPECT_EQ(std::exchange(t_allocations, -1), 1);
  EXPECT_EQ(one.size(), 5u);
}

}  // namespace
}  // namespace treering::test
