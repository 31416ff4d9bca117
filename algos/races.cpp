#include "algos/races.hpp"

#include <algorithm>
#include <string>

namespace treering::algos {
namespace {

std::string place(int rank, bool in, int chunk) {
  return "rank " + std::to_string(rank) + "'s " + (in ? "in[" : "out[") + std::to_string(chunk) +
         "]";
}

}  // namespace

Races::Races(const Network& network)
    : network_(network),
      program_(network.program()),
      callers_(network.processes()),
      clocks_(network.processes()),
      messages_(network.links()),
      cells_(static_cast<std::size_t>(program_.size()) * program_.chunks * 2) {
  for (int process = 0; process < network.processes(); ++process) {
    clocks_[process] = {{callers_ + network.process_rank(process), 1}};
  }
}

int Races::time_of(const Clock& clock, int process) {
  const auto at = std::lower_bound(clock.begin(), clock.end(), std::pair{process, 0});
  return at != clock.end() && at->first == process ? at->second : 0;
}

void Races::join(Clock& clock, const Clock& other) {
  Clock merged;
  merged.reserve(clock.size() + other.size());
  auto a = clock.begin();
  auto b = other.begin();
  while (a != clock.end() || b != other.end()) {
    if (b == other.end() || (a != clock.end() && a->first < b->first)) {
      merged.push_back(*a++);
    } else if (a == clock.end() || b->first < a->first) {
      merged.push_back(*b++);
    } else {
      merged.emplace_back(a->first, std::max(a->second, b->second));
      ++a, ++b;
    }
  }
  clock.swap(merged);
}

// In place, in and out chunk are the same bytes.
Races::Cell& Races::cell(const Touch& t) {
  const bool in = t.in && !program_.in_place;
  return cells_[(static_cast<std::size_t>(t.rank) * program_.chunks + t.chunk) * 2 + (in ? 1 : 0)];
}

Status Races::on_step(const Network::Event& event) {
  Clock& clock = clocks_[event.process];
  for (const Network::Message& m : event.in_messages) {
    if (m.link >= 0) join(clock, *messages_[m.link][m.number]);
  }
  const int now = time_of(clock, event.process) + 1;
  join(clock, {{event.process, now}});

  const bool onto_itself =
      program_.in_place && event.step->verb == Verb::kCopy && event.step->last == Last::kNo;
  if (!onto_itself) {
    for (const Operand& o : event.inputs) TR_RETURN_IF_ERROR(touch(event, o, false));
    for (const Operand& o : event.outputs) TR_RETURN_IF_ERROR(touch(event, o, true));
  }
  std::shared_ptr<const Clock> sent;
  for (const Network::Message& m : event.out_messages) {
    if (m.link < 0) continue;
    if (!sent) sent = std::make_shared<const Clock>(clock);
    messages_[m.link].push_back(sent);
  }
  return {};
}

Status Races::touch(const Network::Event& event, const Operand& o, bool write) {
  Touch t{event.rank, false, o.chunk};
  switch (o.space) {
    case Space::kIn:
      t.in = true;
      break;
    case Space::kOut:
      break;
    case Space::kPeerIn:
      t.in = true;
      t.rank = o.peer;
      break;
    case Space::kPeerOut:
      t.rank = o.peer;
      break;
    default:
      return {};
  }
  const Clock& clock = clocks_[event.process];
  if (time_of(clock, callers_ + t.rank) == 0) {
    return invalid_argument("it uses " + place(t.rank, t.in, t.chunk) +
                            " without knowing that rank " + std::to_string(t.rank) + " has come");
  }
  Cell& c = cell(t);
  const Access self{event.process, time_of(clock, event.process), event.step};
  if (c.write.process >= 0 && time_of(clock, c.write.process) < c.write.time) {
    return unordered(t, c.write, true);
  }
  if (!write) {
    c.reads.push_back(self);
    return {};
  }
  for (const Access& read : c.reads) {
    if (time_of(clock, read.process) < read.time) return unordered(t, read, false);
  }
  c.write = self;
  c.reads.clear();
  return {};
}

Status Races::unordered(const Touch& t, const Access& other, bool written) const {
  return invalid_argument("it uses " + place(t.rank, t.in, t.chunk) + ", which " +
                          network_.describe(other.process, *other.step) + " " +
                          (written ? "writes" : "reads") +
                          " and nothing says which of them comes first");
}

Status Races::finish() const {
  std::vector<Clock> ends(program_.size());
  for (int process = 0; process < network_.processes(); ++process) {
    join(ends[network_.process_rank(process)], clocks_[process]);
  }
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    const int chunk = static_cast<int>(i / 2) % program_.chunks;
    const int rank = static_cast<int>(i / 2) / program_.chunks;
    std::vector<Access> accesses = cells_[i].reads;
    if (cells_[i].write.process >= 0) accesses.push_back(cells_[i].write);
    for (const Access& a : accesses) {
      if (time_of(ends[rank], a.process) >= a.time) continue;
      return invalid_argument("rank " + std::to_string(rank) + " may end before " +
                              network_.describe(a.process, *a.step) + " has used " +
                              place(rank, i % 2 == 1, chunk));
    }
  }
  if (program_.collective != Collective::kBarrier) return {};
  for (int rank = 0; rank < program_.size(); ++rank) {
    for (int other = 0; other < program_.size(); ++other) {
      if (other == rank || time_of(ends[rank], callers_ + other) > 0) continue;
      return invalid_argument("rank " + std::to_string(rank) + " leaves the barrier before rank " +
                              std::to_string(other) + " has come");
    }
  }
  return {};
}

}  // namespace treering::algos
