// The C++ API: every call once with a known answer, ownership, and what is refused before it
// reaches the C API. The operations themselves are tested elsewhere.
#include <array>
#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "treering/treering.hpp"

#include "ranks.hpp"

namespace {

using Ints = std::vector<std::int32_t>;
constexpr int n = 3;  // ranks, where not said otherwise

static_assert(std::is_nothrow_move_constructible_v<tr::Communicator> &&
              !std::is_copy_constructible_v<tr::Communicator>);
static_assert(!std::is_copy_constructible_v<tr::Stream> &&
              !std::is_copy_constructible_v<tr::Event>);
static_assert(!std::is_copy_constructible_v<tr::RedOp> &&
              !std::is_copy_constructible_v<tr::Window>);
static_assert(!std::is_copy_constructible_v<tr::HostBuffer<float>>);

static_assert(tr::kTypeOf<float> == TR_FLOAT32 && tr::kTypeOf<double> == TR_FLOAT64);
static_assert(tr::kTypeOf<std::int8_t> == TR_INT8 && tr::kTypeOf<std::uint8_t> == TR_UINT8);
static_assert(tr::kTypeOf<std::int32_t> == TR_INT32 && tr::kTypeOf<std::uint32_t> == TR_UINT32);
static_assert(tr::kTypeOf<long long> == TR_INT64 && tr::kTypeOf<std::uint64_t> == TR_UINT64);
static_assert(tr::kTypeOf<tr::Float16> == TR_FLOAT16 && tr::kTypeOf<tr::BFloat16> == TR_BFLOAT16);
static_assert(tr::kTypeOf<tr::Float8E4M3> == TR_FLOAT8_E4M3);
static_assert(tr::kTypeOf<tr::Float8E5M2> == TR_FLOAT8_E5M2);
static_assert(!tr::Element<bool> && !tr::Element<std::int16_t> && !tr::Element<void*>);

static_assert(tr::MutableBuffer<std::vector<float>&> && tr::MutableBuffer<std::span<double>>);
static_assert(tr::MutableBuffer<std::array<tr::BFloat16, 3>&> && tr::MutableBuffer<float (&)[4]>);
static_assert(tr::Buffer<const Ints&> && !tr::MutableBuffer<const Ints&>);
// A temporary vector would be gone while a stream still works on it.
static_assert(!tr::Buffer<std::vector<float>>);
static_assert(!tr::Buffer<std::vector<std::string>&>);

Ints iota(int count, int first) {
  Ints values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(CppApi, CollectivesTakeShapesFromTheirBuffers) {
  run_ranks(n, [](tr::Communicator& comm) {
    const int r = comm.rank();
    ASSERT_EQ(comm.size(), n);
    const Ints mine = iota(n, 10 * r);  // rank r: 10 r, 10 r + 1, 10 r + 2; sums 30, 33, 36
    const Ints sums{30, 33, 36};

    Ints out(n);
    EXPECT_OK(comm.all_reduce(mine, out, tr::kSum));
    EXPECT_EQ(out, sums);
    Ints in_place = mine;
    EXPECT_OK(comm.all_reduce(in_place, tr::kMax));
    EXPECT_EQ(in_place, iota(n, 20));

    Ints at_root(r == 1 ? n : 0);
    EXPECT_OK(comm.reduce(mine, at_root, tr::kSum, 1));
    if (r == 1) {
      EXPECT_EQ(at_root, sums);
    }

    Ints copy = mine;
    EXPECT_OK(comm.broadcast(copy, 2));
    EXPECT_EQ(copy, iota(n, 20));

    std::array<std::int32_t, 1> part{};
    EXPECT_OK(comm.reduce_scatter(mine, part, tr::kSum));
    EXPECT_EQ(part[0], sums[r]);
    EXPECT_OK(comm.all_gather(part, out));
    EXPECT_EQ(out, sums);
    Ints gathered(r == 0 ? n : 0);
    EXPECT_OK(comm.gather(part, gathered, 0));
    if (r == 0) {
      EXPECT_EQ(gathered, sums);
    }
    part = {-1};
    EXPECT_OK(comm.scatter(gathered, part, 0));
    EXPECT_EQ(part[0], sums[r]);

    EXPECT_OK(comm.all_to_all(mine, out));
    EXPECT_EQ(out, (Ints{r, 10 + r, 20 + r}));

    EXPECT_OK(comm.scan(mine, out, tr::kSum));
    const std::array<int, n> of_ranks_before{0, 0, 10};
    for (int i = 0; i < n; ++i) EXPECT_EQ(out[i], of_ranks_before[r] + r * i + mine[i]);
    out.assign(n, -7);
    EXPECT_OK(comm.exscan(mine, out, tr::kSum));
    for (int i = 0; i < n; ++i) EXPECT_EQ(out[i], r == 0 ? -7 : of_ranks_before[r] + r * i);
    EXPECT_OK(comm.barrier());
  });
}

TEST(CppApi, PartsOfDifferentSizes) {
  run_ranks(n, [](tr::Communicator& comm) {
    const int r = comm.rank();
    const std::array<std::uint64_t, n> counts{1, 0, 2}, displs{3, 3, 0};
    const Ints mine = iota(static_cast<int>(counts[r]), 10 * r);

    Ints out(4, -1);
    EXPECT_OK(comm.all_gather_v(mine, out, {counts}));
    EXPECT_EQ(out, (Ints{0, 20, 21, -1}));
    out.assign(4, -1);
    EXPECT_OK(comm.gather_v(mine, out, {counts, displs}, 1));
    if (r == 1) {
      EXPECT_EQ(out, (Ints{20, 21, -1, 0}));
    }

    Ints part(counts[r]);
    EXPECT_OK(comm.scatter_v(out, {counts, displs}, part, 1));
    EXPECT_EQ(part, mine);
    const Ints three = iota(3, r);
    EXPECT_OK(comm.reduce_scatter_v(three, part, counts, tr::kSum));
    EXPECT_EQ(part, (r == 0 ? Ints{3} : r == 1 ? Ints{} : Ints{6, 9}));

    // Rank r sends r + 1 elements of value r to everyone.
    const std::vector<std::uint64_t> to(n, r + 1), from{1, 2, 3};
    const Ints give(n * (r + 1), r);
    Ints take(6);
    EXPECT_OK(comm.all_to_all_v(give, {to}, take, {from}));
    EXPECT_EQ(take, (Ints{0, 1, 1, 2, 2, 2}));
  });
}

TEST(CppApi, WrongShapesAreRefusedAndNothingHappens) {
  run_ranks(2, [](tr::Communicator& comm) {
    Ints four(4), three(3);
    const auto refused = [](const tr::Status& s, const char* text) {
      ASSERT_FALSE(s.ok());
      EXPECT_EQ(s.error().code, TR_INVALID_ARGUMENT);
      EXPECT_NE(s.error().message.find(text), std::string::npos) << s.error().message;
      // As the C API's own errors do.
      EXPECT_EQ(s.error().message.find("invalid argument: "), 0u) << s.error().message;
    };
    refused(comm.all_reduce(four, three, tr::kSum), "all_reduce: recv has 3 elements, but 4");
    refused(comm.all_gather(four, four), "but 8 are needed");
    refused(comm.reduce_scatter(four, three, tr::kSum), "send has 4 elements, but 6");
    refused(comm.all_to_all(three, three), "but 2 are needed");
    const std::array<std::uint64_t, 2> counts{1, 4}, displs{0, 1};
    refused(comm.all_gather_v(four, four, {counts, displs}), "part 1 does not lie inside recv");
    refused(comm.all_gather_v(four, four, {std::span(counts).first(1)}), "1 counts for 2 ranks");
    const std::array<std::uint64_t, 2> huge{1, UINT64_MAX};
    refused(comm.all_gather_v(four, four, {huge}), "part 1 does not lie inside");
    EXPECT_OK(comm.async_error());
    EXPECT_OK(comm.all_reduce(four, tr::kSum));  // still in step
  });
}

TEST(CppApi, StreamsEventsAndGroups) {
  run_ranks(2, [](tr::Communicator& comm) {
    const int r = comm.rank();
    auto stream = tr::Stream::create();
    auto event = tr::Event::create();
    ASSERT_TRUE(stream.ok() && event.ok());
    std::vector<double> x(1000, 1.0 + r), y(1000);
    EXPECT_OK(comm.all_reduce(x, y, tr::kSum, stream.value()));
    EXPECT_OK(event.value().record(stream.value()));
    EXPECT_OK(comm.all_reduce(y, tr::kSum, stream.value()));
    EXPECT_OK(event.value().synchronize());
    EXPECT_TRUE(event.value().done().value());
    EXPECT_OK(stream.value().synchronize());
    EXPECT_TRUE(stream.value().done().value());
    EXPECT_EQ(y, std::vector<double>(1000, 6.0));

    auto second = tr::Stream::create();
    ASSERT_TRUE(second.ok());
    EXPECT_OK(second.value().wait(event.value()));
    EXPECT_OK(comm.barrier(second.value()));
    EXPECT_OK(second.value().destroy());

    Ints send{r}, recv{-1};
    {
      tr::GroupGuard group;
      EXPECT_OK(comm.send(send, 1 - r));
      EXPECT_OK(comm.recv(recv, 1 - r));
      EXPECT_OK(group.end());
    }
    EXPECT_EQ(recv[0], 1 - r);
  });
}

TEST(CppApi, OperatorsOfTheCallersOwn) {
  run_ranks(3, [](tr::Communicator& comm) {
    const int r = comm.rank();
    // Keeps the digits in the order of the ranks: does not commute.
    const std::int64_t base = 10;
    auto append = tr::RedOp::create<std::int64_t>(
        [base](std::int64_t lower, std::int64_t higher) {
          std::int64_t shift = 1;
          while (shift <= higher) shift *= base;
          return lower * shift + higher;
        },
        tr::Commutes::kNo);
    ASSERT_TRUE(append.ok()) << append.error().message;
    std::array<std::int64_t, 2> digits{r + 1, r + 4};
    EXPECT_OK(comm.all_reduce(digits, append.value()));
    EXPECT_EQ(digits, (std::array<std::int64_t, 2>{123, 456}));
    EXPECT_OK(append.value().destroy());

    auto weighted = tr::RedOp::premul_sum(0.5 * (r + 1));
    ASSERT_TRUE(weighted.ok()) << weighted.error().message;
    std::array<float, 1> ones{1.0f};
    EXPECT_OK(comm.all_reduce(ones, weighted.value()));
    EXPECT_EQ(ones[0], 3.0f);
  });
}

TEST(CppApi, MemoryWindowsAndSplit) {
  run_ranks(3, [](tr::Communicator& comm) {
    auto buffer = tr::HostBuffer<float>::allocate(10'000);
    ASSERT_TRUE(buffer.ok()) << buffer.error().message;
    auto window = comm.register_buffer(buffer.value());
    ASSERT_TRUE(window.ok()) << window.error().message;
    for (float& x : buffer.value()) x = static_cast<float>(comm.rank());
    EXPECT_OK(comm.all_reduce(buffer.value(), tr::kSum));
    for (const float x : buffer.value()) ASSERT_EQ(x, 3.0f);
    EXPECT_OK(window.value().destroy());

    const tr::HostBuffer<float> moved = std::move(buffer).value();
    EXPECT_EQ(moved.size(), 10'000u);
    EXPECT_EQ(moved[9'999], 3.0f);

    auto odd = comm.split(comm.rank() == 1 ? TR_SPLIT_NONE : 0, -comm.rank());
    ASSERT_TRUE(odd.ok()) << odd.error().message;
    if (comm.rank() == 1) {
      EXPECT_FALSE(odd.value());
    } else {
      EXPECT_EQ(odd.value().size(), 2);
      EXPECT_EQ(odd.value().rank(), comm.rank() == 2 ? 0 : 1);  // by key, descending here
    }
  });
}

// Rank 1 is not wanted any more; then the two that are left are three again, with a new rank 2.
TEST(CppApi, ShrinkAndGrow) {
  const tr::Result<tr_unique_id_t> id = tr::Communicator::unique_id();
  ASSERT_TRUE(id.ok());
  run_ranks(n, [&id](tr::Communicator& comm) {
    const std::array<int, 1> unwanted{1};
    tr::Result<tr::Communicator> wide(tr::Error{});
    if (comm.rank() == 1) {
      EXPECT_FALSE(comm.shrink().ok());
      wide = tr::Communicator::create(n, id.value(), 2);
    } else {
      tr::Result<tr::Communicator> small = comm.shrink(unwanted, std::chrono::seconds(60));
      ASSERT_TRUE(small.ok()) << small.error().message;
      EXPECT_EQ(small.value().size(), 2);
      EXPECT_EQ(small.value().rank(), comm.rank() / 2);
      wide = small.value().grow(n, id.value());
    }
    ASSERT_TRUE(wide.ok()) << wide.error().message;
    Ints sum{wide.value().rank()};
    EXPECT_OK(wide.value().all_reduce(sum, tr::kSum));
    EXPECT_EQ(sum, Ints{3});
  });
}

TEST(CppApi, MovedFromAndDestroyed) {
  auto made = tr::Communicator::in_process(1);
  ASSERT_TRUE(made.ok()) << made.error().message;
  tr::Communicator first = std::move(made.value()[0]);
  EXPECT_TRUE(first);
  tr::Communicator second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): what is left is specified
  Ints x{1};
  const tr::Status s = first.all_reduce(x, tr::kSum);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, TR_INVALID_ARGUMENT);
  EXPECT_OK(second.all_reduce(x, tr::kSum));
  EXPECT_TRUE(second.explain().ok());
  EXPECT_OK(second.finalize());
  EXPECT_OK(second.destroy());
  EXPECT_OK(second.destroy());  // nothing left: nothing to do
}

TEST(CppApi, ErrorsCarryCodeAndText) {
  run_ranks(1, [](tr::Communicator& comm) {
    const tr::Status s = comm.set_algorithm("all_reduce", "no such algorithm");
    ASSERT_FALSE(s.ok());
    EXPECT_EQ(s.error().code, TR_INVALID_ARGUMENT);
    EXPECT_NE(s.error().message.find("no such algorithm"), std::string::npos) << s.error().message;
    try {
      s.or_throw();
      ADD_FAILURE() << "or_throw did not throw";
    } catch (const tr::Exception& e) {
      EXPECT_EQ(e.code(), TR_INVALID_ARGUMENT);
      EXPECT_EQ(e.what(), s.error().message);
    }
    EXPECT_OK(comm.abort());
    const tr::Status after = comm.async_error();
    ASSERT_FALSE(after.ok());
    EXPECT_EQ(after.error().code, TR_ABORTED);
  });
  EXPECT_FALSE(tr::Communicator::in_process(0).ok());
}

// Suites of this name run first, before there are threads that a fork would lose.
TEST(ResultDeathTest, AskingForWhatIsNotThereEndsTheProgram) {
  EXPECT_EQ(tr::Result<int>(3).value(), 3);
  EXPECT_DEATH((void)tr::Result<int>(tr::Error{}).value(), "");
  EXPECT_DEATH((void)tr::Result<int>(3).error(), "");
  EXPECT_DEATH((void)tr::Status().error(), "");
}

}  // namespace
