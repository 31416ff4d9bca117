// Sizes, bandwidths and buffer placement, against numbers worked out by hand from nccl-tests'
// conventions.
#include "perf/case.hpp"

#include <gtest/gtest.h>
#include <vector>

#include "cli/perf/options.hpp"
#include "cli/perf/traffic.hpp"

namespace treering::perf {
namespace {

Case make(Op op, std::uint64_t count) {
  Case what;
  what.op = op;
  what.count = count;
  return what;
}

TEST(Formulas, BandwidthsOfFourRanks) {
  // 4 ranks, float32, 1,000,000 bytes in all, 1,000 us: algbw is 1 GB/s.
  const double us = 1000;
  EXPECT_DOUBLE_EQ(alg_bandwidth(make(Op::kAllReduce, 250000), 4, us), 1.0);
  EXPECT_DOUBLE_EQ(bus_bandwidth(make(Op::kAllReduce, 250000), 4, us), 1.5);
  for (const Op op :
       {Op::kAllGather, Op::kReduceScatter, Op::kGather, Op::kScatter, Op::kAllToAll}) {
    SCOPED_TRACE(op_name(op));
    EXPECT_EQ(total_bytes(make(op, 62500), 4), 1000000u);
    EXPECT_DOUBLE_EQ(alg_bandwidth(make(op, 62500), 4, us), 1.0);
    EXPECT_DOUBLE_EQ(bus_bandwidth(make(op, 62500), 4, us), 0.75);
  }
  for (const Op op : {Op::kReduce, Op::kBroadcast, Op::kSendRecv, Op::kScan, Op::kExscan}) {
    SCOPED_TRACE(op_name(op));
    EXPECT_DOUBLE_EQ(alg_bandwidth(make(op, 250000), 4, us), 1.0);
    EXPECT_DOUBLE_EQ(bus_bandwidth(make(op, 250000), 4, us), 1.0);
  }
  EXPECT_EQ(bus_bandwidth(make(Op::kBarrier, 0), 4, us), 0.0);
  // One rank has no bus to fill.
  EXPECT_EQ(bus_bandwidth(make(Op::kAllReduce, 250000), 1, us), 0.0);
}

TEST(Formulas, PublishedRow) {
  // nccl-tests on 8 GPUs: all_reduce of 64 MiB in 318 us is 370 GB/s.
  EXPECT_NEAR(bus_bandwidth(make(Op::kAllReduce, 16u << 20), 8, 318), 370, 1);
}

TEST(Formulas, CountOfASize) {
  EXPECT_EQ(count_for_bytes(Op::kAllReduce, TR_FLOAT32, 4, 1024), 256u);
  EXPECT_EQ(count_for_bytes(Op::kAllGather, TR_FLOAT32, 4, 1024), 64u);
  EXPECT_EQ(count_for_bytes(Op::kAllToAll, TR_FLOAT64, 3, 1024), 42u);
  EXPECT_EQ(count_for_bytes(Op::kReduceScatter, TR_FLOAT32, 4, 15), 0u);  // no room for one
  for (int i = 0; i < kNumOps; ++i) {
    for (const std::uint64_t bytes : {1, 7, 12, 13, 1000}) {
      Case what = make(static_cast<Op>(i), 0);
      what.count = count_for_bytes(what.op, what.type, 3, bytes);
      EXPECT_LE(total_bytes(what, 3), bytes);
      ++what.count;
      EXPECT_TRUE(what.op == Op::kBarrier || total_bytes(what, 3) > bytes);
    }
  }
  EXPECT_EQ(count_for_bytes(Op::kBarrier, TR_UINT8, 4, 1024), 0u);
}

TEST(Names, GoBothWays) {
  for (int i = 0; i < kNumOps; ++i)
    EXPECT_EQ(op_from_name(op_name(static_cast<Op>(i))), static_cast<Op>(i));
  for (int i = 0; i < kNumRedOps; ++i) {
    EXPECT_EQ(red_op_from_name(red_op_name(static_cast<RedOp>(i))), static_cast<RedOp>(i));
  }
  for (int i = 0; i < TR_NUM_TYPES; ++i) {
    const auto type = static_cast<tr_type_t>(i);
    EXPECT_EQ(type_from_name(type_name(type)), type);
    EXPECT_EQ(type_bytes(type), tr_type_size(type));  // the library's word for it
  }
  EXPECT_EQ(type_from_name("bf16"), TR_BFLOAT16);
  EXPECT_FALSE(op_from_name("allreduce").has_value());
}

TEST(Buffers, InPlaceFollowsTheApi) {
  std::vector<float> a(64), b(64);
  const auto place = [&](Op op, int rank) {
    Case what = make(op, 16);
    what.root = 1;
    what.in_place = 1;
    const Buffers buffers = place_buffers(what, rank, a.data(), b.data());
    return std::pair{static_cast<float*>(buffers.send), static_cast<float*>(buffers.recv)};
  };
  EXPECT_EQ(place(Op::kAllReduce, 2), (std::pair{b.data(), b.data()}));
  EXPECT_EQ(place(Op::kAllGather, 2), (std::pair{b.data() + 32, b.data()}));
  EXPECT_EQ(place(Op::kReduceScatter, 2), (std::pair{b.data(), b.data() + 32}));
  EXPECT_EQ(place(Op::kGather, 1), (std::pair{b.data() + 16, b.data()}));
  EXPECT_EQ(place(Op::kGather, 2), (std::pair{a.data(), b.data()}));
  EXPECT_EQ(place(Op::kScatter, 1), (std::pair{b.data(), b.data() + 16}));
  EXPECT_EQ(place(Op::kAllToAll, 3), (std::pair{b.data(), b.data()}));
  const Buffers apart = place_buffers(make(Op::kAllGather, 16), 2, a.data(), b.data());
  EXPECT_EQ(apart.send, a.data());
  EXPECT_EQ(apart.recv, b.data());
}

TEST(Options, Sizes) {
  std::uint64_t bytes = 0;
  const auto parse = [&](const char* text) { return !parse_size(text, &bytes).has_value(); };
  EXPECT_TRUE(parse("8") && bytes == 8);
  EXPECT_TRUE(parse("4K") && bytes == 4096);
  EXPECT_TRUE(parse("64M") && bytes == 67108864);
  EXPECT_TRUE(parse("1.5GB") && bytes == 1610612736);
  for (const char* bad : {"", "K", "-8", "0", "8X", "8KK", "1e30", "nan"})
    EXPECT_FALSE(parse(bad)) << bad;
  EXPECT_EQ(size_text(67108864), "64M");
  EXPECT_EQ(size_text(1536), "1536");
  EXPECT_EQ(size_text(8), "8");
}

TEST(Options, SweepIsGeometric) {
  Options options;
  options.op = "all_reduce";
  options.ranks = 2;
  options.min_size = "8";
  options.max_size = "64M";
  Job job;
  ASSERT_FALSE(resolve(options, &job).has_value());
  ASSERT_EQ(job.totals.size(), 24u);
  EXPECT_EQ(job.totals.front(), 8u);
  EXPECT_EQ(job.totals.back(), 64u << 20);
  EXPECT_EQ(job.modes, (std::vector<std::uint32_t>{0, 1}));
}

TEST(Options, BadUsageIsExplained) {
  const auto complaint = [](auto change) {
    Options options;
    options.op = "all_reduce";
    options.ranks = 2;
    change(options);
    Job job;
    return resolve(options, &job).value_or("");
  };
  EXPECT_EQ(complaint([](Options&) {}), "");
  EXPECT_NE(complaint([](Options& o) { o.op = "allreduce"; }).find("all_reduce"),
            std::string::npos);
  EXPECT_NE(complaint([](Options& o) { o.types = "float33"; }).find("float32"), std::string::npos);
  EXPECT_NE(complaint([](Options& o) { o.redops = "plus"; }).find("sum"), std::string::npos);
  EXPECT_NE(complaint([](Options& o) { o.root = 2; }).find("--root"), std::string::npos);
  EXPECT_NE(complaint([](Options& o) { o.min_size = "1G"; }).find("-b"), std::string::npos);
  EXPECT_NE(complaint([](Options& o) {
              o.op = "all_gather", o.max_size = "11", o.ranks = 3;
            }).find("takes 12 bytes"),
            std::string::npos);
  EXPECT_EQ(complaint([](Options& o) {
              o.op = "all_gather", o.min_size = o.max_size = "12", o.ranks = 3;
            }),
            "");
  EXPECT_EQ(complaint([](Options& o) { o.op = "barrier"; }), "");
  EXPECT_NE(complaint([](Options& o) { o.json_file = "/nonexistent/x"; }).find("No such file"),
            std::string::npos);
  EXPECT_EQ(complaint([](Options& o) { o.json_file = "/dev/null"; }), "");
  EXPECT_NE(complaint([](Options& o) { o.min_ratio = 1; }).find("--against"), std::string::npos);
  EXPECT_NE(complaint([](Options& o) { o.op = "scan", o.redops = "avg"; }).find("avg"),
            std::string::npos);
  EXPECT_NE(complaint([](Options& o) { o.op = "send_recv", o.in_place = true; }).find("in place"),
            std::string::npos);
}

// Counted by hand, for a vector of 1200 bytes.
TEST(Traffic, OfNamedAlgorithmsIsThatOfTheirSchedules) {
  Case what;
  what.count = 300;
  // Per chunk: read; then n-1 times written to a slot and read there, with a read of the own part;
  // the last of these and n-2 more store and send it on, the last one only stores it.
  const auto ring = [](std::uint64_t n) { return (1 + (n - 1) * 3 + 1 + (n - 1) * 3) * 1200; };
  EXPECT_EQ(memory_traffic(what, 2, "ring").bytes, ring(2));
  EXPECT_EQ(memory_traffic(what, 3, "ring").bytes, ring(3));
  EXPECT_FALSE(memory_traffic(what, 3, "ring").at_least);
  // One shot: everybody reads its vector, stores it for n-1 others, folds n and stores.
  EXPECT_EQ(memory_traffic(what, 4, "one_shot").bytes, 4u * (1 + 3 + 4 + 1) * 1200);
  what.op = Op::kAllGather;
  what.count = 100;  // n = 3: the whole has 1200 bytes
  // The own part is read twice, stored here and for both others; theirs are read and stored.
  EXPECT_EQ(memory_traffic(what, 3, "direct").bytes, 3u * (2 + 1 + 2 + 2 + 2) * 400);
  what.in_place = 1;  // the own part stays
  EXPECT_EQ(memory_traffic(what, 3, "direct").bytes, 3u * (1 + 2 + 2 + 2) * 400);
}

TEST(Traffic, OtherwiseIsTheLeastOfAll) {
  const auto least = [](Op op, std::uint64_t count, std::uint32_t in_place) {
    Case what;
    what.op = op;
    what.count = count;
    what.in_place = in_place;
    const MemoryTraffic traffic = memory_traffic(what, 3, "");
    EXPECT_TRUE(traffic.at_least);
    return traffic.bytes;
  };
  EXPECT_EQ(least(Op::kAllReduce, 300, 0), 6u * 1200);
  EXPECT_EQ(least(Op::kAllReduce, 300, 1), 6u * 1200);
  EXPECT_EQ(least(Op::kReduce, 300, 0), 4u * 1200);
  EXPECT_EQ(least(Op::kBroadcast, 300, 0), 4u * 1200);
  EXPECT_EQ(least(Op::kBroadcast, 300, 1), 3u * 1200);
  EXPECT_EQ(least(Op::kAllGather, 100, 0), 4u * 1200);
  EXPECT_EQ(least(Op::kReduceScatter, 100, 1), 4u * 1200);
  EXPECT_EQ(least(Op::kGather, 100, 1), 2u * 800);
  EXPECT_EQ(least(Op::kAllToAll, 100, 0), 6u * 1200);
  EXPECT_EQ(least(Op::kAllToAll, 100, 1), 6u * 800);
  EXPECT_EQ(least(Op::kScan, 300, 0), 6u * 1200);
  EXPECT_EQ(least(Op::kScan, 300, 1), 5u * 1200);
  EXPECT_EQ(least(Op::kExscan, 300, 0), 4u * 1200);
  EXPECT_EQ(least(Op::kBarrier, 0, 0), 0u);
}

}  // namespace
}  // namespace treering::perf
