// The report for a terminal: the steps as a table (or per rank, where a table is too wide), then
// counts.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "cli/explain/report.hpp"
#include "cli/explain/words.hpp"

namespace treering::explain {
namespace {

using algos::Schedule;
using algos::Step;

constexpr std::size_t kMaxTableWidth = 132;
constexpr int kMaxLists = 8;
constexpr std::size_t kMaxLinksListed = 16;

std::string pad(const std::string& text, std::size_t width) {
  return text.size() >= width ? text : text + std::string(width - text.size(), ' ');
}
std::string pad_left(const std::string& text, std::size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

std::string trim_right(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string count(std::uint64_t number, const char* noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

// "1.5 MiB" where two decimals are exact, else "349568 bytes".
std::string bytes_text(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  for (int i = 3; i >= 0; --i) {
    const std::uint64_t unit = std::uint64_t{1} << (10 * (i + 1));
    if (bytes < unit || bytes % (unit / 4) != 0) continue;
    char text[64];
    std::snprintf(text, sizeof text, "%.7g %s",
                  static_cast<double>(bytes) / static_cast<double>(unit), kUnits[i]);
    return text;
  }
  return count(bytes, "byte");
}

// "1.5 S"
std::string share(std::uint64_t bytes, const Report& report) {
  char text[64];
  std::snprintf(text, sizeof text, "%.4g S",
                static_cast<double>(bytes) / static_cast<double>(report.cut.vector_bytes));
  return text;
}

std::string amount(std::uint64_t bytes, const Report& report) {
  if (report.algorithm->collective == Collective::kBarrier) return bytes_text(bytes);
  return share(bytes, report) + " = " + bytes_text(bytes);
}

std::string row_name(int time) { return time == 0 ? "start" : std::to_string(time); }

// --- the table ---------------------------------------------------------------------------------

struct Column {
  std::size_t from = 0, what = 0, to = 0;
  std::vector<std::vector<Cell>> rows;  // by time; several steps may fire at once

  std::size_t width() const { return from + what + to + (from > 0) + (to > 0); }
  std::string text(const Cell& c) const {
    std::string s;
    if (from > 0) s += pad_left(c.from, from) + " ";
    s += pad(c.what, what);
    if (to > 0) s += " " + pad(c.to, to);
    return s;
  }
};

Column column_of(const Report& report, int rank) {
  Column column;
  column.rows.resize(report.playback.time + 1);
  const Schedule& schedule = report.schedules()[rank];
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    Cell c = cell(report.program, schedule, schedule.steps[i]);
    column.from = std::max(column.from, c.from.size());
    column.what = std::max(column.what, c.what.size());
    column.to = std::max(column.to, c.to.size());
    column.rows[report.playback.at[rank][i]].push_back(std::move(c));
  }
  return column;
}

// Empty if it would be too wide.
std::string table(const Report& report) {
  std::vector<Column> columns;
  std::string head = " step ", rule = "------";
  std::vector<std::size_t> widths;
  for (int r = 0; r < report.ranks; ++r) {
    columns.push_back(column_of(report, r));
    const std::string name = "rank " + std::to_string(r);
    const std::size_t width = std::max(columns.back().width(), name.size());
    widths.push_back(width);
    const std::size_t left = (width - name.size()) / 2;
    head += "| " + pad(std::string(left, ' ') + name, width) + " ";
    rule += "+" + std::string(width + 2, '-');
    if (head.size() > kMaxTableWidth) return {};
  }
  std::string text = trim_right(head) + "\n" + rule + "\n";
  for (int t = 0; t <= report.playback.time; ++t) {
    std::size_t lines = 0;
    for (const Column& c : columns) lines = std::max(lines, c.rows[t].size());
    for (std::size_t i = 0; i < lines; ++i) {
      std::string line = pad(pad_left(i == 0 ? row_name(t) : "", 5), 6);
      for (std::size_t r = 0; r < columns.size(); ++r) {
        const auto& cells = columns[r].rows[t];
        line += "| " + pad(i < cells.size() ? columns[r].text(cells[i]) : "", widths[r]) + " ";
      }
      text += trim_right(line) + "\n";
    }
  }
  return text;
}

// An example from this very schedule: the step with the most parts.
std::string how_to_read(const Report& report) {
  const Schedule* where = nullptr;
  const Step* best = nullptr;
  std::size_t most = 0;
  bool folds = false, keeps = false;
  for (const Schedule& schedule : report.schedules()) {
    for (const Step& step : schedule.steps) {
      const Cell c = cell(report.program, schedule, step);
      folds |= c.what.find('+') != std::string::npos;
      keeps |= c.what.find('=') != std::string::npos;
      const std::size_t parts =
          4 * !c.from.empty() + 2 * !c.to.empty() + (c.what.find('+') != std::string::npos);
      if (parts <= most) continue;
      most = parts;
      best = &step;
      where = &schedule;
    }
  }
  if (best == nullptr) return {};
  const Cell c = cell(report.program, *where, *best);
  std::string text = "Read \"" + c.from + (c.from.empty() ? "" : " ") + trim_right(c.what) +
                     (c.to.empty() ? "" : " ") + c.to + "\" in the column of rank " +
                     std::to_string(where->rank) + ": it " +
                     sentence(report.program, *where, *best) + ".\n";
  if (folds) text += "  +  the rank adds its own part to what comes in\n";
  if (keeps) text += "  =  the rank keeps the outcome in its result\n";
  return text;
}

std::string list(const Report& report, int rank) {
  const Schedule& schedule = report.schedules()[rank];
  std::vector<std::size_t> order(schedule.steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto& at = report.playback.at[rank];
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return at[a] < at[b]; });
  std::string text = "rank " + std::to_string(rank) + "\n";
  if (order.empty()) text += "  (nothing to do)\n";
  for (std::size_t i : order) {
    text += "  " + pad_left(row_name(at[i]), 5) + "  " +
            sentence(report.program, schedule, schedule.steps[i]) + "\n";
  }
  return text;
}

std::string steps_text(const Report& report, std::optional<int> rank) {
  if (rank) return list(report, *rank);
  if (const std::string text = table(report); !text.empty()) {
    return text + "\n" + how_to_read(report);
  }
  const int shown = std::min(report.ranks, kMaxLists);
  std::string text;
  for (int r = 0; r < shown; ++r) text += (r > 0 ? "\n" : "") + list(report, r);
  if (shown < report.ranks) {
    text += "\n(ranks " + std::to_string(shown) + " to " + std::to_string(report.ranks - 1) +
            ": --rank R shows one)\n";
  }
  return text;
}

// --- the counts --------------------------------------------------------------------------------

// "; hosts {0, 1} and {2, 3}"
std::string hosts_text(const HostMap& hosts) {
  const Hosts at = hosts.view();
  std::string text = "; hosts";
  for (int h = 0; h < at.count; ++h) {
    text += h == 0 ? " {" : h + 1 < at.count ? ", {" : " and {";
    for (int m = 0; m < at.members_of(h); ++m) {
      text += (m > 0 ? ", " : "") + std::to_string(at.rank_of(h, m));
    }
    text += "}";
  }
  return text;
}

std::string head_text(const Report& report) {
  const Cut& cut = report.cut;
  std::string text = std::string(collective_name(report.algorithm->collective)) + " by " +
                     report.algorithm->name + ", " + count(report.ranks, "rank");
  if (has_root(report.algorithm->collective)) text += ", root " + std::to_string(report.root);
  if (report.hosts) text += hosts_text(*report.hosts);
  if (report.algorithm->collective == Collective::kBarrier) {
    return text + "\nMessages have one byte and mean nothing: that they come does.\n";
  }
  text += "\nThe vector has S = " + bytes_text(cut.vector_bytes) + " (" +
          std::to_string(cut.vector_bytes / type_bytes(report.type)) + " " +
          type_name(report.type) + ")";
  const std::size_t chunks = cut.chunk_bytes.size();
  if (chunks == 1) return text + " and travels whole: c0 is all of it.\n";
  text += " in " + std::to_string(chunks) + " chunks, c0 to c" + std::to_string(chunks - 1);
  if (cut.chunk_bytes.front() == cut.chunk_bytes.back()) {
    return text + ", of " + bytes_text(cut.chunk_bytes.front()) + ".\n";
  }
  std::size_t full = 0, empty = 0;
  for (std::uint64_t bytes : cut.chunk_bytes) {
    full += bytes == cut.chunk_bytes.front();
    empty += bytes == 0;
  }
  text += ": " + std::to_string(full) + " of " + bytes_text(cut.chunk_bytes.front());
  if (full + empty < chunks) text += ", one of " + bytes_text(cut.chunk_bytes[full]);
  if (empty > 0) text += ", " + std::to_string(empty) + " empty (no message)";
  return text + ".\n";
}

std::string time_text(const Report& report) {
  const Playback& p = report.playback;
  std::string text = "Steps: " + std::to_string(p.time) +
                     (p.time == 1 ? " message" : " messages one after the other") +
                     " until the last rank is done";
  if (p.hops != p.time) {
    text +=
        " (a link carries one chunk at a time);\n  the longest chain of messages that wait for ";
    text += "each other's content has " + std::to_string(p.hops);
  }
  text += ".\n";
  if (report.pipelined) {
    text += "Slices: " + std::to_string(report.cut.most_slices()) + " per chunk of at most " +
            bytes_text(report.cut.slice_bytes) + "; pipelined, all is done after " +
            std::to_string(*report.pipelined) + " slice messages one after the other\n  (" +
            std::to_string(p.time * static_cast<std::int64_t>(report.cut.most_slices())) +
            " if each step waited for whole chunks).\n";
  }
  if (report.proven_slots) {
    text += "Proven by the checker: the result is complete, every input is used once, ";
    text += "no deadlock with " + count(*report.proven_slots, "slot") + " per link.\n";
  }
  return text;
}

// "rank 0", "ranks 0-3", "ranks 0, 2-3"
std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (j > i) text += (j == i + 1 ? ", " : "-") + std::to_string(ranks[j]);
    i = j + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::string rank_line(const RankTraffic& t, const Report& report) {
  std::string text;
  if (t.sent.messages > 0) {
    text += "sends " + count(t.sent.messages, "message") + ", " + amount(t.sent.bytes, report);
  }
  if (t.cast.messages > 0) {
    text += (text.empty() ? "" : "; ") + ("sends " + count(t.cast.messages, "message")) +
            " to all at once, " + amount(t.cast.bytes, report);
  }
  if (t.window_bytes > 0) {
    text += (text.empty() ? "" : "; ") + ("reads and writes " + amount(t.window_bytes, report)) +
            " in its peers' memory";
  }
  if (text.empty()) text = "sends nothing";
  if (t.received.messages > 0) text += "; receives " + amount(t.received.bytes, report);
  return text;
}

std::string ranks_traffic(const Report& report) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;  // in order of the first rank
  for (int r = 0; r < report.ranks; ++r) {
    const std::string line = rank_line(report.volume.ranks[r], report);
    const auto it =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == line; });
    if (it != groups.end())
      it->second.push_back(r);
    else
      groups.push_back({line, {r}});
  }
  std::string text = "Counted, per rank:\n";
  for (const auto& [line, ranks] : groups) text += "  " + ranks_text(ranks) + ": " + line + "\n";
  return text + "Formula: " + report.algorithm->formula + "\nSource: " + report.algorithm->source +
         "\n";
}

std::string links_traffic(const Report& report) {
  std::vector<LinkTraffic> links = report.volume.links;
  std::erase_if(links, [](const LinkTraffic& l) { return l.traffic.messages == 0; });
  if (links.empty()) return "Links: no data passes through links.\n";
  std::string text = "Links: " + std::to_string(links.size()) + " in use\n";
  std::vector<std::pair<Traffic, std::vector<std::string>>> groups;
  for (const LinkTraffic& l : links) {
    const auto it = std::find_if(groups.begin(), groups.end(),
                                 [&](const auto& g) { return g.first == l.traffic; });
    if (it != groups.end())
      it->second.push_back(to_string(l.link));
    else
      groups.push_back({l.traffic, {to_string(l.link)}});
  }
  for (const auto& [traffic, names] : groups) {
    text += "  " + count(traffic.messages, "message") + ", " + amount(traffic.bytes, report) +
            (names.size() > 1 ? " each:" : ":");
    const std::size_t shown = names.size() > kMaxLinksListed ? kMaxLinksListed - 1 : names.size();
    for (std::size_t i = 0; i < shown; ++i) text += (i > 0 ? ", " : " ") + names[i];
    if (shown < names.size()) text += " and " + std::to_string(names.size() - shown) + " more";
    text += "\n";
  }
  return text;
}

// What crosses between hosts, which is what a two-level algorithm is about.
std::string between_hosts(const Report& report) {
  const Hosts at = report.hosts->view();
  Traffic inside, between;
  for (const LinkTraffic& l : report.volume.links) {
    const bool cast = l.link.kind == LinkId::Kind::kCast;
    Traffic& t = !cast && at.host_of(l.link.src) != at.host_of(l.link.dst) ? between : inside;
    t.messages += l.traffic.messages;
    t.bytes += l.traffic.bytes;
  }
  const auto words = [&](const Traffic& t) {
    return count(t.messages, "message") + ", " + amount(t.bytes, report);
  };
  return "Between hosts: " + words(between) + "; inside: " + words(inside) + "\n";
}

}  // namespace

std::string to_text(const Report& report, std::optional<int> rank) {
  std::string text = head_text(report) + "\n" + steps_text(report, rank) + "\n" + time_text(report);
  text += ranks_traffic(report) + links_traffic(report);
  return report.hosts ? text + between_hosts(report) : text;
}

std::string list_algorithms(std::optional<Collective> collective, int ranks, const HostMap* hosts) {
  std::size_t width = 0;
  std::map<Collective, std::vector<const algos::Algorithm*>> lists;
  for (const algos::Algorithm& a : algos::all_algorithms()) {
    if (collective && a.collective != *collective) continue;
    if (ranks > 0 && !algos::supports(a, ranks, hosts)) continue;
    lists[a.collective].push_back(&a);
    width = std::max(width, std::string(a.name).size());
  }
  std::string text;
  for (const auto& [op, list] : lists) {
    text += std::string(collective_name(op)) + "\n";
    for (const algos::Algorithm* a : list) {
      text += "  " + pad(a->name, width) + "  " + a->formula;
      if (!a->needs_hosts() && !a->supports(2)) text += " (for a single rank)";
      if (a->needs_hosts() && hosts == nullptr) text += " (on several hosts)";
      text += "\n";
      if (collective) text += std::string(width + 4, ' ') + "source: " + a->source + "\n";
    }
  }
  return text + "S: bytes of the vector; n: ranks" +
         (ranks > 0 ? ", here " + std::to_string(ranks) : "") + "; H: hosts, of p ranks each" +
         (hosts != nullptr ? ", here " + hosts->text() : "") + "\n";
}

}  // namespace treering::explain
