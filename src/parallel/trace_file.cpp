// Traces of all ranks in one place, and as a file for trace viewers.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "treering/parallel/trace.hpp"

#include "parallel/try.hpp"

namespace tr::par {
namespace {

// ---- A trace as bytes, from rank to rank. Both ends are this file.
void put(std::string& bytes, const void* data, std::size_t size) {
  bytes.append(static_cast<const char*>(data), size);
}

std::string pack(const Trace& trace) {
  std::string bytes;
  for (const Interval& interval : trace.intervals()) {
    const std::uint32_t head[] = {static_cast<std::uint32_t>(interval.row), interval.is_send,
                                  static_cast<std::uint32_t>(interval.name.size())};
    put(bytes, head, sizeof head);
    put(bytes, &interval.begin_us, sizeof interval.begin_us);
    put(bytes, &interval.end_us, sizeof interval.end_us);
    put(bytes, &interval.message, sizeof interval.message);
    put(bytes, &interval.data_bytes, sizeof interval.data_bytes);
    put(bytes, &interval.sent_bytes, sizeof interval.sent_bytes);
    bytes += interval.name;
  }
  return bytes;
}

Trace unpack(int rank, const std::string& bytes) {
  Trace trace(rank, wall_clock(), bytes.size());
  std::size_t at = 0;
  const auto get = [&](void* data, std::size_t size) {
    std::memcpy(data, bytes.data() + at, size);
    at += size;
  };
  while (at < bytes.size()) {
    std::uint32_t head[3];
    Interval interval;
    get(head, sizeof head);
    interval.row = static_cast<Row>(head[0]);
    interval.is_send = head[1] != 0;
    get(&interval.begin_us, sizeof interval.begin_us);
    get(&interval.end_us, sizeof interval.end_us);
    get(&interval.message, sizeof interval.message);
    get(&interval.data_bytes, sizeof interval.data_bytes);
    get(&interval.sent_bytes, sizeof interval.sent_bytes);
    interval.name = bytes.substr(at, head[2]);
    at += head[2];
    trace.add(std::move(interval));
  }
  return trace;
}

// Bytes travel as elements of two bytes, which nobody computes with.
View as_elements(std::string& bytes) {
  bytes.resize((bytes.size() + 1) / 2 * 2);
  return view_of(bytes.data(), 1, static_cast<std::int64_t>(bytes.size() / 2), DType::kBFloat16);
}

// ---- JSON.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') out += '\\';
    if (byte >= 0x20 && byte < 0x7f) {
      out += letter;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      out += escaped;
    }
  }
  return out + "\"";
}

std::string fixed(double us) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3f", us);
  return text;
}

class JsonTrace {
 public:
  explicit JsonTrace(double origin_us) : origin_us_(origin_us) {}

  void add(const Trace& trace) {
    meta("process_name", trace.rank(), 0, "rank " + std::to_string(trace.rank()));
    for (int row = 0; row < kNumRows; ++row) add_row(trace, static_cast<Row>(row));
  }
  std::string text() && { return "{\"traceEvents\":[\n" + std::move(events_) + "\n]}\n"; }

 private:
  // A viewer's thread cannot show intervals that overlap: each goes to the first that is free.
  void add_row(const Trace& trace, Row row) {
    std::vector<const Interval*> mine;
    for (const Interval& interval : trace.intervals()) {
      if (interval.row == row) mine.push_back(&interval);
    }
    std::stable_sort(mine.begin(), mine.end(), [](const Interval* a, const Interval* b) {
      return a->begin_us < b->begin_us;
    });
    std::vector<double> busy_until;
    for (const Interval* interval : mine) {
      const auto lane = std::find_if(busy_until.begin(), busy_until.end(),
                                     [&](double end) { return end <= interval->begin_us; });
      const int number = static_cast<int>(lane - busy_until.begin());
      const int thread = static_cast<int>(row) * kMostLanes + std::min(number, kMostLanes - 1);
      if (lane == busy_until.end()) {
        if (number < kMostLanes) {
          meta("thread_name", trace.rank(), thread,
               name_of(row) + (number > 0 ? " " + std::to_string(number + 1) : std::string()));
        }
        busy_until.push_back(interval->end_us);
      } else {
        *lane = interval->end_us;
      }
      add_interval(trace.rank(), thread, *interval);
    }
  }

  void add_interval(int rank, int thread, const Interval& interval) {
    const std::string place =
        ",\"pid\":" + std::to_string(rank) + ",\"tid\":" + std::to_string(thread);
    event("{\"ph\":\"X\",\"name\":" + quoted(interval.name) + ",\"cat\":\"" +
          name_of(interval.row) + "\",\"ts\":" + fixed(interval.begin_us - origin_us_) +
          ",\"dur\":" + fixed(interval.end_us - interval.begin_us) + place +
          (interval.data_bytes > 0
               ? ",\"args\":{\"bytes\":" + std::to_string(interval.data_bytes) + "}"
               : std::string()) +
          "}");
    if (interval.message == 0) return;
    const double when = interval.is_send ? interval.begin_us : interval.end_us;
    event(std::string("{\"ph\":\"") + (interval.is_send ? "s" : "f\",\"bp\":\"e") +
          "\",\"name\":\"message\",\"cat\":\"" + name_of(interval.row) + "\",\"id\":" +
          std::to_string(interval.message) + ",\"ts\":" + fixed(when - origin_us_) + place + "}");
  }

  void meta(const char* what, int rank, int thread, const std::string& name) {
    event(std::string("{\"ph\":\"M\",\"name\":\"") + what + "\",\"pid\":" + std::to_string(rank) +
          ",\"tid\":" + std::to_string(thread) + ",\"args\":{\"name\":" + quoted(name) + "}}");
  }
  void event(const std::string& json) {
    if (!events_.empty()) events_ += ",\n";
    events_ += json;
  }

  static constexpr int kMostLanes = 64;
  double origin_us_;
  std::string events_;
};

}  // namespace

Result<std::vector<Trace>> gather_traces(Comm& world, const Trace& mine) {
  std::string packed = pack(mine);  // now: what follows may itself be traced
  std::vector<Trace> traces;
  if (world.rank() == 0) traces.push_back(mine);
  double size = static_cast<double>(packed.size());
  std::vector<double> sizes(static_cast<std::size_t>(world.size()));
  const View to = view_of(sizes.data(), world.size(), 1, DType::kFloat64);
  TRY_ASSIGN(const Comm::Mark gathered,
             world.all_gather(view_of(&size, 1, 1, DType::kFloat64), to));
  TRY(world.wait(gathered));
  if (world.rank() != 0) {
    TRY_ASSIGN(const Comm::Mark sent, world.send(as_elements(packed), 0));
    TRY(world.wait(sent));
    return traces;
  }
  for (int rank = 1; rank < world.size(); ++rank) {
    const auto bytes = static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]);
    std::string theirs(bytes, '\0');
    TRY_ASSIGN(const Comm::Mark received, world.recv(as_elements(theirs), rank));
    TRY(world.wait(received));
    theirs.resize(bytes);
    traces.push_back(unpack(rank, theirs));
  }
  return traces;
}

std::string to_chrome_json(std::span<const Trace> traces) {
  double origin = 0.0;
  bool is_first = true;
  for (const Trace& trace : traces) {
    for (const Interval& interval : trace.intervals()) {
      origin = is_first ? interval.begin_us : std::min(origin, interval.begin_us);
      is_first = false;
    }
  }
  JsonTrace json(origin);
  for (const Trace& trace : traces) json.add(trace);
  return std::move(json).text();
}

Status write_chrome_trace(const std::string& path, std::span<const Trace> traces) {
  const std::string json = to_chrome_json(traces);
  const auto failed = [&] {
    return Error{TR_SYSTEM_ERROR,
                 "cannot write the trace to " + path + ": " + std::strerror(errno)};
  };
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return failed();
  const bool is_written = std::fwrite(json.data(), 1, json.size(), file) == json.size();
  const bool is_closed = std::fclose(file) == 0;
  if (!is_written || !is_closed) return failed();
  return {};
}

}  // namespace tr::par
