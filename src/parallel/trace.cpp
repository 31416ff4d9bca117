#include "treering/parallel/trace.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "treering/parallel/schedule.hpp"

namespace tr::par {
namespace {

class WallClock final : public Clock {
 public:
  double now_us() const override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::micro>(now).count();
  }
};

// A set of times: spans in order that do not touch.
struct TimeSpan {
  double begin = 0.0, end = 0.0;
};
using Times = std::vector<TimeSpan>;

template <class Wanted>
Times times_of(const Trace& trace, const Wanted& wanted) {
  Times all, merged;
  for (const Interval& interval : trace.intervals()) {
    if (wanted(interval.row)) all.push_back({interval.begin_us, interval.end_us});
  }
  std::sort(all.begin(), all.end(),
            [](const TimeSpan& a, const TimeSpan& b) { return a.begin < b.begin; });
  for (const TimeSpan& span : all) {
    if (!merged.empty() && span.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, span.end);
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

// What of `a` is not in `b`.
Times without(const Times& a, const Times& b) {
  Times left;
  auto gone = b.begin();
  for (TimeSpan span : a) {
    while (gone != b.end() && gone->end <= span.begin) ++gone;
    for (auto cut = gone; cut != b.end() && cut->begin < span.end; ++cut) {
      if (cut->begin > span.begin) left.push_back({span.begin, cut->begin});
      span.begin = std::min(cut->end, span.end);
    }
    if (span.end > span.begin) left.push_back(span);
  }
  return left;
}

double length(const Times& times) {
  double sum = 0.0;
  for (const TimeSpan& span : times) sum += span.end - span.begin;
  return sum;
}

Times computing(const Trace& trace) {
  return without(times_of(trace, [](Row row) { return row == Row::kCompute; }),
                 times_of(trace, [](Row row) { return row == Row::kWait; }));
}

}  // namespace

const Clock& wall_clock() {
  static const WallClock clock;
  return clock;
}

const char* name_of(Row row) {
  constexpr const char* kNames[] = {"compute", "dp", "tp", "pp", "other", "wait"};
  return kNames[static_cast<int>(row)];
}

Row row_of(std::string_view group) {
  for (const Row row : {Row::kDp, Row::kTp, Row::kPp}) {
    if (group == name_of(row)) return row;
  }
  return Row::kOther;
}

void Trace::add(Interval interval) {
  if (intervals_.size() < capacity_) {
    intervals_.push_back(std::move(interval));
  } else {
    ++dropped_;
  }
}

void Trace::clear() {
  intervals_.clear();
  dropped_ = 0;
}

const Interval* Trace::find(Row row, std::string_view name, int occurrence) const {
  for (const Interval& interval : intervals_) {
    if (interval.row == row && interval.name == name && occurrence-- == 0) return &interval;
  }
  return nullptr;
}

void ActionTrace::begin(const Action&) { begin_us_ = trace_.now_us(); }

void ActionTrace::end(const Action& action) {
  if (!is_compute(action.kind)) return;
  trace_.add({Row::kCompute, to_string(action, with_stage_), begin_us_, trace_.now_us()});
}

Overlap overlap_of(const Trace& trace, std::initializer_list<Row> rows) {
  const Times communication = times_of(
      trace, [&](Row row) { return std::find(rows.begin(), rows.end(), row) != rows.end(); });
  return {length(communication), length(without(communication, computing(trace)))};
}

double computed_us(const Trace& trace) { return length(computing(trace)); }

double idle_share(std::span<const Trace> traces) {
  double busy = 0.0, first = 0.0, last = 0.0;
  bool is_first = true;
  for (const Trace& trace : traces) {
    const Times times = computing(trace);
    if (times.empty()) continue;
    busy += length(times);
    first = is_first ? times.front().begin : std::min(first, times.front().begin);
    last = is_first ? times.back().end : std::max(last, times.back().end);
    is_first = false;
  }
  const double all = (last - first) * static_cast<double>(traces.size());
  return all > 0.0 ? 1.0 - busy / all : 0.0;
}

}  // namespace tr::par
