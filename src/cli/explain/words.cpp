#include "cli/explain/words.hpp"

#include <algorithm>
#include <vector>

namespace treering::explain {
namespace {

using algos::Operand;
using algos::Program;
using algos::Schedule;
using algos::Space;
using algos::Step;
using algos::Verb;

// What a step does, sorted by what a reader wants to know.
struct Parts {
  std::vector<int> from;        // ranks whose messages it takes
  std::vector<int> to;          // ranks that get its message
  bool to_all = false;          // the message goes to every other rank
  bool through_memory = false;  // peers' buffers instead of messages
  bool peek = false;
  bool own_input = false;   // folds or sends what the caller gave
  bool own_result = false;  // folds or sends what it kept earlier
  bool keeps = false;
  int own_chunk = -1;
  int kept_chunk = -1;
  int sent_chunk = -1;
  int received_chunk = -1;

  int folded() const { return static_cast<int>(from.size()) + own_input + own_result; }
  // The chunk that the step is about.
  int chunk() const {
    for (int c : {received_chunk, own_chunk, kept_chunk})
      if (c >= 0) return c;
    return sent_chunk;
  }
};

Parts parts_of(const Schedule& schedule, const Step& step) {
  Parts p;
  for (const Operand& o : schedule.inputs(step)) {
    switch (o.space) {
      case Space::kLink:
        p.from.push_back(o.link.src);
        p.received_chunk = o.chunk;
        p.peek |= o.peek;
        break;
      case Space::kPeerIn:
      case Space::kPeerOut:
        p.from.push_back(o.peer);
        p.received_chunk = o.chunk;
        p.through_memory = true;
        break;
      case Space::kIn:
        p.own_input = true, p.own_chunk = o.chunk;
        break;
      case Space::kOut:
        p.own_result = true, p.own_chunk = o.chunk;
        break;
      default:
        break;
    }
  }
  for (const Operand& o : schedule.outputs(step)) {
    switch (o.space) {
      case Space::kLink:
        p.sent_chunk = o.chunk;
        if (o.link.kind == LinkId::Kind::kCast)
          p.to_all = true;
        else
          p.to.push_back(o.link.dst);
        break;
      case Space::kPeerOut:
        p.to.push_back(o.peer);
        p.through_memory = true;
        break;
      case Space::kOut:
        p.keeps = true, p.kept_chunk = o.chunk;
        break;
      default:
        break;
    }
  }
  std::sort(p.from.begin(), p.from.end());
  std::sort(p.to.begin(), p.to.end());
  return p;
}

bool is_everyone(const std::vector<int>& ranks, const Schedule& schedule) {
  return static_cast<int>(ranks.size()) == schedule.size - 1 && schedule.size > 3;
}

std::string short_list(const std::vector<int>& ranks, const Schedule& schedule) {
  if (is_everyone(ranks, schedule)) return "each";
  std::string text;
  for (int r : ranks) text += (text.empty() ? "" : ",") + std::to_string(r);
  return text;
}

// "rank 3", "ranks 1 and 2", "ranks 1, 2 and 3", "every other rank"
std::string long_list(const std::vector<int>& ranks, const Schedule& schedule) {
  if (is_everyone(ranks, schedule)) return "every other rank";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string chunk_text(int chunk) { return "chunk " + std::to_string(chunk); }

std::string receiving(const Parts& p, const Schedule& schedule) {
  std::string text = p.through_memory ? "reads " : p.peek ? "looks at " : "receives ";
  text += chunk_text(p.received_chunk) + (p.through_memory ? " of " : " from ");
  text += long_list(p.from, schedule);
  if (p.through_memory) text += " in their memory";
  if (p.peek) text += " (and leaves it there for a later step)";
  const bool several = p.from.size() > 1;
  if (p.own_input)
    text += several ? ", adds them to its own" : ", adds its own";
  else if (p.own_result)
    text += several ? ", adds them to what it holds" : ", adds it to what it holds";
  else if (several)
    text += ", adds them up";
  return text;
}

// The bytes of a barrier mean nothing; that they come does.
Cell barrier_cell(const Parts& p, const Schedule& schedule) {
  Cell c;
  if (!p.from.empty()) c.from = short_list(p.from, schedule) + " ->";
  c.what = "here";
  if (p.to_all || !p.to.empty()) c.to = "-> " + (p.to_all ? "all" : short_list(p.to, schedule));
  return c;
}

std::string barrier_sentence(const Parts& p, const Schedule& schedule) {
  if (!p.from.empty()) return "hears from " + long_list(p.from, schedule) + " who has come so far";
  return "tells " + (p.to_all ? "every other rank" : long_list(p.to, schedule)) +
         " who has come so far";
}

}  // namespace

Cell cell(const Program& program, const Schedule& schedule, const Step& step) {
  if (step.verb == Verb::kPublish) return {"", "ready", "-> all"};
  const Parts p = parts_of(schedule, step);
  if (program.collective == Collective::kBarrier) return barrier_cell(p, schedule);
  if (step.verb == Verb::kAwait) return {short_list(p.from, schedule) + " ->", "ready", ""};
  Cell c;
  const char* arrow = p.through_memory ? "=>" : "->";
  if (!p.from.empty()) c.from = short_list(p.from, schedule) + " " + arrow;
  c.what = "c" + std::to_string(p.chunk());
  // Always two marks, so that they stand below each other.
  c.what += p.folded() > 1 ? " +" : "  ";
  c.what += p.keeps ? "=" : " ";
  if (p.to_all)
    c.to = "-> all";
  else if (!p.to.empty())
    c.to = std::string(arrow) + " " + short_list(p.to, schedule);
  return c;
}

std::string sentence(const Program& program, const Schedule& schedule, const Step& step) {
  if (step.verb == Verb::kPublish) {
    return "tells every other rank where its buffers are and that it has come this far";
  }
  const Parts p = parts_of(schedule, step);
  if (step.verb == Verb::kAwait) {
    return "hears that " + long_list(p.from, schedule) + " has come this far";
  }
  if (program.collective == Collective::kBarrier) return barrier_sentence(p, schedule);
  const bool sends = p.to_all || !p.to.empty();
  const bool sums = p.folded() > 1;
  std::string text;
  if (!p.from.empty()) {
    text = receiving(p, schedule);
    if (p.keeps) text += sums ? ", keeps the sum" : ", keeps it";
    if (p.keeps && p.kept_chunk != p.received_chunk) text += " as " + chunk_text(p.kept_chunk);
  } else if (p.keeps && p.own_result) {
    text = "finishes " + chunk_text(p.kept_chunk) + " of its result where it lies";
  } else if (p.keeps) {
    text = "copies its own " + chunk_text(p.own_chunk) + " to its result";
    if (p.kept_chunk != p.own_chunk) text += " as " + chunk_text(p.kept_chunk);
  } else if (p.through_memory) {
    return "writes its own " + chunk_text(p.own_chunk) + " to the memory of " +
           long_list(p.to, schedule);
  } else if (p.own_result) {
    text = "sends the " + chunk_text(p.own_chunk) + " it holds";
  } else {
    text = "sends its own " + chunk_text(p.own_chunk);
  }
  if (step.last == algos::Last::kYes && sums) text += " (complete now)";
  if (!sends) return text;
  const std::string whom = p.to_all ? "every other rank" : long_list(p.to, schedule);
  if (p.through_memory) return text + ", writes it to the memory of " + whom;
  if (p.from.empty() && !p.keeps) return text + " to " + whom;
  return text + (p.keeps ? ", sends it to " : ", passes it on to ") + whom;
}

}  // namespace treering::explain
