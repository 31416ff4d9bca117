// Trace: what a rank did when. Drawn by Chrome's and Perfetto's trace viewers, and the source of
// "how much of the communication was hidden behind computation".
//
//   Trace trace(rank);
//   world = trace_comm(std::move(world), trace);      // before the mesh is made of it
//   ActionTrace actions(trace);                       // an observer of the pipeline's actions
//   ... a step ...
//   gather_traces(mesh.world(), trace)                // all on rank 0, for write_chrome_trace
//
// An operation lasts from when it was issued until its wait returned: no library says when the last
// byte moved, so this is an upper bound. What counts is how much of it nothing was computed beside:
// overlap is 1 - exposed / total, never "it was asynchronous".
//
// Threads: a Trace is one rank's thread's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "treering/parallel/comm.hpp"
#include "treering/parallel/pipeline.hpp"

namespace tr::par {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now_us() const = 0;
};
const Clock& wall_clock();  // the same for all ranks of a host

enum class Row : std::uint8_t {
  kCompute,
  kDp,
  kTp,
  kPp,
  kOther,  // groups of any other name
  kWait,   // the rank stood still until an operation was over
};
inline constexpr int kNumRows = 6;
const char* name_of(Row row);
Row row_of(std::string_view group);  // Comm::name()

struct Interval {
  Row row = Row::kCompute;
  std::string name;
  double begin_us = 0.0, end_us = 0.0;
  // Of a message: the same number at both its ends, and at no other's. 0: no message.
  std::uint64_t message = 0;
  bool is_send = false;
  // Of an operation: its whole vector, and what this rank sent.
  std::int64_t data_bytes = 0, sent_bytes = 0;
  bool operator==(const Interval&) const = default;
};

class Trace {
 public:
  explicit Trace(int rank, const Clock& clock = wall_clock(), std::size_t capacity = 1 << 20)
      : clock_(&clock), rank_(rank), capacity_(capacity) {}
  int rank() const { return rank_; }
  double now_us() const { return clock_->now_us(); }
  void add(Interval interval);  // beyond the capacity: counted only
  const std::vector<Interval>& intervals() const { return intervals_; }
  std::size_t dropped() const { return dropped_; }
  void clear();
  // The occurrence-th of this name in the order of recording; nullptr: there is none.
  const Interval* find(Row row, std::string_view name, int occurrence = 0) const;

 private:
  const Clock* clock_;
  int rank_;
  std::size_t capacity_, dropped_ = 0;
  std::vector<Interval> intervals_;
};

// Records what is computed ("F3", "B0.2") in the compute row.
class ActionTrace final : public ActionObserver {
 public:
  explicit ActionTrace(Trace& trace, bool with_stage = false)
      : trace_(trace), with_stage_(with_stage) {}
  void begin(const Action& action) override;
  void end(const Action& action) override;

 private:
  Trace& trace_;
  bool with_stage_;
  double begin_us_ = 0.0;
};

// The same group, and those split from it; operations and waits go to `trace`, which outlives them.
std::unique_ptr<Comm> trace_comm(std::unique_ptr<Comm> inner, Trace& trace);

// ---- What a trace says. Intervals of a row may overlap; time counts once.
struct Overlap {
  double total_us = 0.0, exposed_us = 0.0;
  double share() const { return total_us > 0.0 ? 1.0 - exposed_us / total_us : 1.0; }
};
// Of the communication in these rows: exposed is what lies beside neither computation nor, inside
// one, a wait.
Overlap overlap_of(const Trace& trace,
                   std::initializer_list<Row> rows = {Row::kDp, Row::kTp, Row::kPp, Row::kOther});
double computed_us(const Trace& trace);  // without waits
// The share of the ranks' time, from the first computation to the last, in which they computed
// nothing: a pipeline's bubble.
double idle_share(std::span<const Trace> traces);

// ---- Files.
// Collective, host backends. All ranks' traces on rank 0, nothing elsewhere.
Result<std::vector<Trace>> gather_traces(Comm& world, const Trace& mine);
// The Trace Event Format: a process a rank, a thread a row (several where intervals overlap), an
// arrow from each send to its receive.
std::string to_chrome_json(std::span<const Trace> traces);
Status write_chrome_trace(const std::string& path, std::span<const Trace> traces);

}  // namespace tr::par
