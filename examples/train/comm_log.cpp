#include "train/comm_log.hpp"

#include <algorithm>
#include <cstdio>

namespace train {

using tr::par::Interval;
using tr::par::Row;

void CallTable::add(const tr::par::Trace& trace) {
  for (const Interval& i : trace.intervals()) {
    if (i.row == Row::kCompute || i.row == Row::kWait) continue;
    Calls& calls = calls_[{i.row, i.name, i.data_bytes}];
    ++calls.count;
    calls.sent_bytes += i.sent_bytes;
    calls.total_us += i.end_us - i.begin_us;
    calls.longest_us = std::max(calls.longest_us, i.end_us - i.begin_us);
  }
}

std::string CallTable::to_string() const {
  char line[160];
  std::snprintf(line, sizeof line, "%-6s %-14s %12s %8s %11s %10s %10s %11s %11s\n", "group",
                "operation", "bytes", "calls", "total ms", "mean ms", "most ms", "algbw GB/s",
                "busbw GB/s");
  std::string text = std::string("rank 0's communication, tests and checks included:\n") + line;
  for (const auto& [key, calls] : calls_) {
    const auto& [row, name, bytes] = key;
    const auto gbs = [&](double all_bytes) {
      return calls.total_us > 0.0 ? all_bytes / calls.total_us / 1e3 : 0.0;
    };
    const auto count = static_cast<double>(calls.count);
    std::snprintf(line, sizeof line, "%-6s %-14s %12lld %8lld %11.3f %10.4f %10.4f %11.3f %11.3f\n",
                  name_of(row), name.c_str(), static_cast<long long>(bytes),
                  static_cast<long long>(calls.count), calls.total_us / 1e3,
                  calls.total_us / count / 1e3, calls.longest_us / 1e3,
                  gbs(static_cast<double>(bytes) * count),
                  gbs(static_cast<double>(calls.sent_bytes)));
    text += line;
  }
  return text;
}

}  // namespace train
