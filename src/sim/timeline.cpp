#include <cinttypes>
#include <cstdio>
#include <map>
#include <set>

#include "sim/simulator.hpp"

namespace treering::sim {

std::string to_perfetto(const SimResult& result, const Fabric& fabric) {
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  char line[320];
  const auto add = [&](int length) { text.append(line, static_cast<std::size_t>(length)); };
  std::map<std::string, int> places;
  std::set<std::pair<std::int32_t, std::int32_t>> named;
  const char* comma = "";
  const auto thread = [](const Span& s) { return s.rank * 64 + s.lane; };
  for (const Span& s : result.spans) {
    const std::string place = fabric.place(s.rank);
    const auto [process, is_new] = places.try_emplace(place, static_cast<int>(places.size()) + 1);
    if (is_new) {
      add(std::snprintf(line, sizeof line,
                        "%s{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":"
                        "\"%s\"}}",
                        comma, process->second, place.c_str()));
      comma = ",\n";
    }
    if (named.insert({s.rank, s.lane}).second) {
      add(std::snprintf(line, sizeof line,
                        "%s{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{"
                        "\"name\":\"rank %d lane %d\"}}",
                        comma, process->second, thread(s), s.rank, s.lane));
    }
    add(std::snprintf(line, sizeof line,
                      "%s{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.6f,\"dur\":%.6f,\"name\":"
                      "\"%s\",\"args\":{\"chunk\":%d,\"slice\":%u,\"bytes\":%" PRIu64 "}}",
                      comma, process->second, thread(s), s.begin_us, s.end_us - s.begin_us,
                      algos::verb_name(s.verb), s.chunk, s.slice, s.bytes));
  }
  return text + "\n]}\n";
}

}  // namespace treering::sim
