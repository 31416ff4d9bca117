// Schedules as text: CSV in and out, rows for people.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "parallel/schedule_parts.hpp"

namespace tr::par {
namespace {

constexpr std::array<const char*, 9> kSymbols = {"F", "B", "I", "W", "SA", "RA", "SG", "RG", "R"};
constexpr std::string_view kHeading = "rank,action,stage,micro_batch";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Cuts `text` at the first `separator`: answers what is before it, leaves what is behind.
std::string_view cut_at(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view piece = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  return piece;
}

// A number in [0, limit).
std::optional<int> number(std::string_view text, int limit) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (value < 0 || value >= limit) return std::nullopt;
  return value;
}

struct Line {
  int rank = 0;
  Action action;
};

Result<Line> parse_line(std::string_view text) {
  const auto bad = [](const std::string& what) { return Error{TR_INVALID_ARGUMENT, what}; };
  std::array<std::string_view, 4> fields;
  if (std::count(text.begin(), text.end(), ',') != 3) {
    return bad("it has not four fields, " + std::string(kHeading));
  }
  for (std::string_view& field : fields) field = trimmed(cut_at(text, ','));
  const auto wrong = [&](const char* what, std::string_view field, int limit) {
    return bad(std::string(what) + " \"" + std::string(field.substr(0, 40)) +
               "\" is not a number from 0 to " + std::to_string(limit - 1));
  };
  const std::optional<int> rank = number(fields[0], kMaxRanks);
  if (!rank) return wrong("rank", fields[0], kMaxRanks);
  const std::optional<ActionKind> kind = kind_of(fields[1]);
  if (!kind) {
    return bad("action \"" + std::string(fields[1].substr(0, 40)) +
               "\" is none of F, B, I, W, SA, RA, SG, RG, R");
  }
  const std::optional<int> stage = number(fields[2], kMaxStages);
  if (!stage) return wrong("stage", fields[2], kMaxStages);
  const std::optional<int> micro_batch = number(fields[3], kMaxMicroBatches);
  if (!micro_batch) return wrong("micro-batch", fields[3], kMaxMicroBatches);
  return Line{*rank, {*kind, *stage, *micro_batch}};
}

// Numbers of ranks, stages and micro-batches are those that occur.
Result<Schedule> schedule_of(const std::vector<Line>& lines) {
  Schedule schedule;
  schedule.name = "csv";
  int stages = 0;
  for (const Line& line : lines) {
    schedule.ranks = std::max(schedule.ranks, line.rank + 1);
    schedule.micro_batches = std::max(schedule.micro_batches, line.action.micro_batch + 1);
    stages = std::max(stages, line.action.stage + 1);
  }
  if (stages % schedule.ranks != 0) {
    return Error{TR_INVALID_ARGUMENT, "the schedule has " + std::to_string(stages) +
                                          " stages, which is no multiple of its " +
                                          std::to_string(schedule.ranks) + " ranks"};
  }
  schedule.stages_per_rank = stages / schedule.ranks;
  schedule.actions.resize(static_cast<std::size_t>(schedule.ranks));
  for (const Line& line : lines) schedule.actions[line.rank].push_back(line.action);
  const bool is_bare = std::all_of(lines.begin(), lines.end(),
                                   [](const Line& line) { return is_compute(line.action.kind); });
  if (is_bare) add_communication(schedule);
  return schedule;
}

}  // namespace

const char* symbol_of(ActionKind kind) { return kSymbols[static_cast<std::size_t>(kind)]; }

std::optional<ActionKind> kind_of(std::string_view symbol) {
  const auto* found = std::find(kSymbols.begin(), kSymbols.end(), symbol);
  if (found == kSymbols.end()) return std::nullopt;
  return static_cast<ActionKind>(found - kSymbols.begin());
}

bool is_compute(ActionKind kind) { return kind <= ActionKind::kBackwardWeights; }
bool is_communication(ActionKind kind) {
  return !is_compute(kind) && kind != ActionKind::kReduceGradients;
}

std::string to_string(const Action& action, bool with_stage) {
  std::string text = symbol_of(action.kind);
  if (action.kind != ActionKind::kReduceGradients) text += std::to_string(action.micro_batch);
  if (with_stage) text += "." + std::to_string(action.stage);
  return text;
}

Result<Schedule> schedule_from_csv(std::string_view text) {
  std::vector<Line> lines;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = trimmed(cut_at(text, '\n'));
    if (line.empty() || line.front() == '#' || (number == 1 && line == kHeading)) continue;
    Result<Line> parsed = parse_line(line);
    if (!parsed) {
      return Error{TR_INVALID_ARGUMENT,
                   "line " + std::to_string(number) + ": " + parsed.error().message};
    }
    lines.push_back(parsed.value());
  }
  if (lines.empty()) return Error{TR_INVALID_ARGUMENT, "the schedule is empty"};
  return schedule_of(lines);
}

std::string to_csv(const Schedule& schedule) {
  std::string text = std::string(kHeading) + "\n";
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (const Action& action : schedule.actions[rank]) {
      text += std::to_string(rank) + "," + symbol_of(action.kind) + "," +
              std::to_string(action.stage) + "," + std::to_string(action.micro_batch) + "\n";
    }
  }
  return text;
}

std::string to_string(const Schedule& schedule, bool with_communication) {
  std::string text;
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    text += "rank " + std::to_string(rank) + ":";
    for (const Action& action : schedule.actions[rank]) {
      if (!with_communication && !is_compute(action.kind)) continue;
      text += " " + to_string(action, schedule.stages_per_rank > 1);
    }
    text += "\n";
  }
  return text;
}

std::string draw(const Timeline& timeline, double unit) {
  constexpr double kMostColumns = 1000.0;
  unit = std::max(unit, timeline.makespan / kMostColumns);
  if (!(unit > 0.0)) return {};
  const auto stages = [&] {  // does any rank have a second one?
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      for (const Timeline::Span& span : timeline.ranks[rank]) {
        if (span.action.stage != static_cast<int>(rank)) return true;
      }
    }
    return false;
  }();
  std::size_t width = 0;  // of a column
  for (const auto& spans : timeline.ranks) {
    for (const Timeline::Span& span : spans) {
      if (!is_compute(span.action.kind)) continue;
      width = std::max(width, to_string(span.action, stages).size() + 1);
    }
  }
  std::string text;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    std::string row = "rank " + std::to_string(rank) + " ";
    const std::size_t start = row.size();
    const auto fill_to = [&](double time, char with) {
      const auto columns = static_cast<std::size_t>(std::lround(time / unit));
      row.resize(std::max(row.size(), start + width * columns), with);
    };
    for (const Timeline::Span& span : timeline.ranks[rank]) {
      if (!is_compute(span.action.kind)) continue;
      fill_to(span.begin, '.');
      row += to_string(span.action, stages);
      fill_to(span.end, ' ');
    }
    fill_to(timeline.makespan, '.');
    text += row + "\n";
  }
  return text;
}

}  // namespace tr::par
