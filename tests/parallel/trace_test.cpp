// Traces: what is recorded, what is concluded, what is written; and time that is computed.
#include "treering/parallel/trace.hpp"

#include <fstream>
#include <gtest/gtest.h>
#include <mutex>

#include "treering/parallel/simulated.hpp"

#include "ranks.hpp"

namespace tr::par {
namespace {

using partest::on_ranks;

Trace trace_with(std::initializer_list<Interval> intervals, int rank = 0) {
  Trace trace(rank);
  for (const Interval& interval : intervals) trace.add(interval);
  return trace;
}

TEST(Trace, ExposedIsWhatNothingIsComputedBeside) {
  // compute 0-10 and 20-30; within the first, a wait 6-8; dp 5-9 and 8-25, tp 28-40.
  const Trace trace = trace_with({{Row::kCompute, "F0", 0, 10},
                                  {Row::kWait, "recv", 6, 8},
                                  {Row::kDp, "all_reduce", 5, 9},
                                  {Row::kDp, "all_reduce", 8, 25},
                                  {Row::kCompute, "B0", 20, 30},
                                  {Row::kTp, "all_gather", 28, 40}});
  const Overlap dp = overlap_of(trace, {Row::kDp});
  EXPECT_DOUBLE_EQ(dp.total_us, 20);    // 5-25
  EXPECT_DOUBLE_EQ(dp.exposed_us, 12);  // 6-8 and 10-20
  EXPECT_DOUBLE_EQ(dp.share(), 0.4);
  const Overlap all = overlap_of(trace);
  EXPECT_DOUBLE_EQ(all.total_us, 32);    // and 28-40
  EXPECT_DOUBLE_EQ(all.exposed_us, 22);  // and 30-40
  EXPECT_DOUBLE_EQ(computed_us(trace), 18);
  EXPECT_DOUBLE_EQ(overlap_of(trace, {Row::kPp}).share(), 1.0);
  EXPECT_EQ(trace.find(Row::kDp, "all_reduce", 1)->begin_us, 8);
  EXPECT_EQ(trace.find(Row::kDp, "all_reduce", 2), nullptr);
}

TEST(Trace, IdleShareIsOfAllRanksTime) {
  const std::vector<Trace> traces = {
      trace_with({{Row::kCompute, "F0", 10, 20}, {Row::kCompute, "B0", 40, 50}}),
      trace_with({{Row::kCompute, "F0", 20, 40}, {Row::kWait, "recv", 25, 30}}, 1)};
  EXPECT_DOUBLE_EQ(idle_share(traces), 1 - 35.0 / 80.0);
  EXPECT_DOUBLE_EQ(idle_share(std::vector<Trace>{Trace(0)}), 0.0);
}

TEST(Trace, KeepsNoMoreThanItsCapacity) {
  Trace trace(0, wall_clock(), 2);
  for (int i = 0; i < 5; ++i) trace.add({Row::kCompute, "F" + std::to_string(i), 0, 1});
  EXPECT_EQ(trace.intervals().size(), 2u);
  EXPECT_EQ(trace.dropped(), 3u);
}

TEST(Trace, IsWrittenForViewers) {
  const std::vector<Trace> traces = {
      trace_with(
          {{Row::kCompute, "F\"0", 1000, 1001.5}, {Row::kPp, "send", 1001.5, 1003, 7, true}}),
      trace_with({{Row::kPp, "recv", 1000.5, 1004, 7, false}, {Row::kPp, "recv", 1001, 1002}}, 1)};
  EXPECT_EQ(to_chrome_json(traces),
            R"({"traceEvents":[
{"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"rank 0"}},
{"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"compute"}},
{"ph":"X","name":"F\"0","cat":"compute","ts":0.000,"dur":1.500,"pid":0,"tid":0},
{"ph":"M","name":"thread_name","pid":0,"tid":192,"args":{"name":"pp"}},
{"ph":"X","name":"send","cat":"pp","ts":1.500,"dur":1.500,"pid":0,"tid":192},
{"ph":"s","name":"message","cat":"pp","id":7,"ts":1.500,"pid":0,"tid":192},
{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"rank 1"}},
{"ph":"M","name":"thread_name","pid":1,"tid":192,"args":{"name":"pp"}},
{"ph":"X","name":"recv","cat":"pp","ts":0.500,"dur":3.500,"pid":1,"tid":192},
{"ph":"f","bp":"e","name":"message","cat":"pp","id":7,"ts":4.000,"pid":1,"tid":192},
{"ph":"M","name":"thread_name","pid":1,"tid":193,"args":{"name":"pp 2"}},
{"ph":"X","name":"recv","cat":"pp","ts":1.000,"dur":1.000,"pid":1,"tid":193}
]}
)");
  const std::string path = testing::TempDir() + "treering_trace.json";
  ASSERT_TRUE(write_chrome_trace(path, traces));
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), to_chrome_json(traces));
  std::remove(path.c_str());
  const Status failed = write_chrome_trace("/no/such/place", traces);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("/no/such/place: No such file"), std::string::npos);
}

// Both ends of each message get the same number, no two messages do; rank 0 has all traces.
TEST(Trace, FollowsMessagesAndGathers) {
  on_ranks(3, [](std::unique_ptr<Comm> world) {
    Trace trace(world->rank());
    Result<Mesh> made = Mesh::create(trace_comm(std::move(world), trace), {1, 3, 1});
    ASSERT_TRUE(made) << made.error().message;
    Mesh& mesh = made.value();
    float out[2] = {1.0f, 2.0f}, in[2] = {};
    const int next = (mesh.rank() + 1) % 3, previous = (mesh.rank() + 2) % 3;
    for (Comm* comm : {&mesh.pp_forward(), &mesh.pp_backward()}) {
      for (float& element : out) {
        const auto sent = comm->send(view_of(&element, 1, 1, DType::kFloat32), next);
        float* to = &in[&element - out];
        const auto received = comm->recv(view_of(to, 1, 1, DType::kFloat32), previous);
        ASSERT_TRUE(sent && received);
        ASSERT_TRUE(comm->wait(received.value()));
        ASSERT_TRUE(comm->wait(sent.value()));
      }
    }
    EXPECT_EQ(in[0], 1.0f);
    EXPECT_EQ(in[1], 2.0f);
    EXPECT_EQ(mesh.pp_forward().traffic()[Operation::kSend].bytes, 8);
    const Result<std::vector<Trace>> all = gather_traces(mesh.world(), trace);
    ASSERT_TRUE(all) << all.error().message;
    if (mesh.rank() != 0) {
      EXPECT_TRUE(all.value().empty());
      return;
    }
    std::vector<std::uint64_t> sent[3], received[3];
    for (const Trace& one : all.value()) {
      for (const Interval& interval : one.intervals()) {
        if (interval.row != Row::kPp) continue;
        EXPECT_LE(interval.begin_us, interval.end_us);
        (interval.is_send ? sent : received)[one.rank()].push_back(interval.message);
      }
    }
    std::vector<std::uint64_t> different;
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(sent[rank].size(), 4u);
      EXPECT_EQ(sent[rank], received[(rank + 1) % 3]);
      different.insert(different.end(), sent[rank].begin(), sent[rank].end());
    }
    std::sort(different.begin(), different.end());
    EXPECT_EQ(std::unique(different.begin(), different.end()), different.end());
    EXPECT_EQ(all.value()[0].intervals()[0], trace.intervals()[0]);
  });
}

// 4 ranks on 2 nodes, 100 bytes a us within one and 10 between them, 1 us latency.
TEST(Simulated, LinksTakeTheirTime) {
  const SimulatedLinks links{100.0, 10.0, 2, 1.0};
  on_ranks(4, [&](std::unique_ptr<Comm> world) {
    SimulatedClock clock;
    Trace trace(world->rank(), clock);
    auto comm = simulate_links(std::move(world), clock, links, &trace);
    comm->set_name("dp");
    const int rank = comm->rank();
    std::vector<float> data(1024, 1.0f);
    const View all = view_of(data.data(), 1, 1024, DType::kFloat32);
    // The last rank comes after 30 us; 6 chunks of 1 KiB go between nodes, beside 500 us of
    // computation.
    clock.advance(10.0 * rank);
    const auto reduced = comm->all_reduce(all, all);
    ASSERT_TRUE(reduced) << reduced.error().message;
    clock.advance(500.0);
    ASSERT_TRUE(comm->wait(reduced.value()));
    const double end = 30.0 + 6 * 1024 / 10.0 + 1.0;
    EXPECT_DOUBLE_EQ(clock.now_us(), end);
    EXPECT_EQ(data[1023], 4.0f);
    EXPECT_EQ(trace.find(Row::kDp, "all_reduce")->begin_us, 30.0);
    EXPECT_EQ(trace.find(Row::kDp, "all_reduce")->end_us, end);

    // Messages: 0 -> 1 on a node, 2 -> 1 between nodes; two from the same port, one after the
    // other.
    ASSERT_TRUE(comm->barrier());
    const View some = all.columns(0, 500);
    if (rank == 0) {
      const auto first = comm->send(some, 1), second = comm->send(some, 1);
      ASSERT_TRUE(comm->wait(first.value()) && comm->wait(second.value()));
      EXPECT_DOUBLE_EQ(clock.now_us(), end + 41.0);
    }
    if (rank == 2) {
      ASSERT_TRUE(comm->wait(comm->send(some, 1).value()));
    }
    if (rank == 1) {
      const auto first = comm->recv(some, 0), second = comm->recv(some, 0);
      ASSERT_TRUE(comm->wait(first.value()));
      EXPECT_DOUBLE_EQ(clock.now_us(), end + 21.0);
      ASSERT_TRUE(comm->wait(second.value()));
      EXPECT_DOUBLE_EQ(clock.now_us(), end + 41.0);
      ASSERT_TRUE(comm->wait(comm->recv(some, 2).value()));
      EXPECT_DOUBLE_EQ(clock.now_us(), end + 201.0);
    }
  });
}

TEST(Simulated, ProductsTakeTheirTime) {
  auto inner = make_host_compute("ref");
  ASSERT_TRUE(inner);
  SimulatedClock clock;
  Trace trace(0, clock);
  auto compute = simulate_compute(*inner.value(), clock, 12.0, &trace);
  float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 0, 1, 1, 1}, c[4];
  ASSERT_TRUE(compute->multiply(Transpose::kNo, Transpose::kNo, view_of(a, 2, 3, DType::kFloat32),
                                view_of(b, 3, 2, DType::kFloat32),
                                view_of(c, 2, 2, DType::kFloat32)));
  EXPECT_EQ(c[3], 11.0f);
  EXPECT_DOUBLE_EQ(clock.now_us(), 2.0);  // 2 * 2 * 2 * 3 operations
  ASSERT_TRUE(compute->multiply(Transpose::kYes, Transpose::kNo, view_of(a, 3, 2, DType::kFloat32),
                                view_of(b, 3, 2, DType::kFloat32),
                                view_of(c, 2, 2, DType::kFloat32)));
  EXPECT_DOUBLE_EQ(computed_us(trace), 4.0);
}

}  // namespace
}  // namespace tr::par
