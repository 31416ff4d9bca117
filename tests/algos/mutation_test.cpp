// The checker must notice every small change of every algorithm, unless the change changes nothing.
//
// Each schedule of 4 and 5 ranks is mutated in one place and checked. A mutant that passes must be
// equivalent by the rules of `equivalent` below, which look at the mutation only.
#include <algorithm>
#include <functional>
#include <set>

#include "tests/algos/support.hpp"

namespace treering::algos {
namespace {

struct Mutant {
  std::string what;
  std::function<void(Schedule&)> apply;
  bool equivalent = false;  // may pass
};

Schedule rebuilt(const Schedule& from, const std::vector<std::size_t>& order) {
  Schedule to = from;
  to.steps.clear();
  for (const std::size_t i : order) to.steps.push_back(from.steps[i]);
  return to;
}

std::vector<std::size_t> identity(std::size_t n) {
  std::vector<std::size_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = i;
  return order;
}

// What a step touches, with one name for the same bytes.
std::set<Operand> places(const Program& program, const Step& step,
                         std::span<const Operand> operands) {
  std::set<Operand> result;
  const bool onto_itself = program.in_place && step.verb == Verb::kCopy && step.last == Last::kNo;
  for (Operand o : operands) {
    if (o.space == Space::kLink) {
      o.chunk = 0;
      o.peek = false;
    } else if (onto_itself || program.collective == Collective::kBarrier) {
      continue;  // it touches nothing; a barrier's byte means nothing
    }
    if (program.in_place && o.space == Space::kIn) o.space = Space::kOut;
    if (program.in_place && o.space == Space::kPeerIn) o.space = Space::kPeerOut;
    result.insert(o);
  }
  return result;
}

bool disjoint(const std::set<Operand>& a, const std::set<Operand>& b) {
  return std::none_of(a.begin(), a.end(), [&](const Operand& o) { return b.count(o) > 0; });
}

std::set<Operand> links_of(const std::set<Operand>& places) {
  std::set<Operand> links;
  for (const Operand& o : places) {
    if (o.space == Space::kLink) links.insert(o);
  }
  return links;
}

// Two steps may change places if they share no link and no chunk that one of them writes.
bool independent(const Program& program, const Schedule& s, const Step& a, const Step& b) {
  const auto in_a = places(program, a, s.inputs(a)), out_a = places(program, a, s.outputs(a));
  const auto in_b = places(program, b, s.inputs(b)), out_b = places(program, b, s.outputs(b));
  // In a barrier what was heard before a send goes out with it.
  if (program.collective == Collective::kBarrier && !links_of(in_a).empty() &&
      !links_of(out_b).empty()) {
    return false;
  }
  return disjoint(out_a, out_b) && disjoint(out_a, in_b) && disjoint(in_a, out_b) &&
         disjoint(links_of(in_a), links_of(in_b));
}

// A step may be done twice if it uses no link and does not overwrite what it reads.
bool repeatable(const Program& program, const Schedule& s, const Step& step) {
  const auto in = places(program, step, s.inputs(step)),
             out = places(program, step, s.outputs(step));
  return links_of(in).empty() && links_of(out).empty() && disjoint(in, out);
}

// Of two lanes only order within each counts, so only neighbours within a lane are exchanged.
void add_order_mutants(const Schedule& s, const Program& program, std::vector<Mutant>& mutants) {
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const std::string step = to_string(s, s.steps[i]);
    mutants.push_back({"drop " + step, [i](Schedule& m) {
                         auto order = identity(m.steps.size());
                         order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
                         m = rebuilt(m, order);
                       }});
    mutants.push_back({"repeat " + step,
                       [i](Schedule& m) {
                         auto order = identity(m.steps.size());
                         order.insert(order.begin() + static_cast<std::ptrdiff_t>(i), i);
                         m = rebuilt(m, order);
                       },
                       repeatable(program, s, s.steps[i])});
    for (std::size_t j = i + 1; j < s.steps.size(); ++j) {
      if (s.steps[j].lane != s.steps[i].lane) continue;
      mutants.push_back({"exchange " + step + " and " + to_string(s, s.steps[j]),
                         [i, j](Schedule& m) {
                           auto order = identity(m.steps.size());
                           std::swap(order[i], order[j]);
                           m = rebuilt(m, order);
                         },
                         independent(program, s, s.steps[i], s.steps[j])});
      break;
    }
  }
}

void add_step_mutants(const Schedule& s, const Program& program, std::vector<Mutant>& mutants) {
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step& step = s.steps[i];
    const std::string text = to_string(s, step);
    const int operands = step.inputs + step.outputs;
    mutants.push_back({"toggle last of " + text, [i](Schedule& m) {
                         Last& last = m.steps[i].last;
                         last = last == Last::kYes ? Last::kNo : Last::kYes;
                       }});
    if (program.chunks > 1 && step.verb != Verb::kPublish && step.verb != Verb::kAwait) {
      mutants.push_back({"another chunk in " + text, [i, operands, &program](Schedule& m) {
                           for (int o = 0; o < operands; ++o) {
                             std::int32_t& chunk = m.operands[m.steps[i].first_operand + o].chunk;
                             chunk = (chunk + 1) % program.chunks;
                           }
                         }});
    }
    // Without a claim of order the sum is the same, only its bits are others: on all ranks alike.
    if (step.inputs > 1 && folds(program.collective)) {
      mutants.push_back({"inputs reversed in " + text,
                         [i](Schedule& m) {
                           const auto first = m.operands.begin() + m.steps[i].first_operand;
                           std::reverse(first, first + m.steps[i].inputs);
                         },
                         !program.keeps_order});
    }
    if (step.verb != Verb::kPublish && step.verb != Verb::kAwait) {
      mutants.push_back({"own input added to " + text, [i](Schedule& m) {
                           Step& changed = m.steps[i];
                           const auto old = m.operands;
                           const auto first = old.begin() + changed.first_operand;
                           Operand own;
                           own.chunk = first->chunk;
                           changed.first_operand = static_cast<int>(m.operands.size());
                           m.operands.push_back(own);
                           m.operands.insert(m.operands.end(), first,
                                             first + changed.inputs + changed.outputs);
                           ++changed.inputs;
                         }});
    }
  }
}

void add_operand_mutants(const Schedule& s, const Program& program, std::vector<Mutant>& mutants) {
  for (const Step& step : s.steps) {
    for (int i = 0; i < step.inputs + step.outputs; ++i) {
      const std::size_t at = step.first_operand + i;
      const Operand& o = s.operands[at];
      const bool is_output = i >= step.inputs;
      const std::string text = to_string(s, step) + ", operand " + std::to_string(i);
      if (o.space == Space::kLink) {
        mutants.push_back({"another peer in " + text, [at, is_output](Schedule& m) {
                             LinkId& link = m.operands[at].link;
                             if (link.kind == LinkId::Kind::kCast || !is_output) {
                               link.src = (link.src + 1) % m.size;
                             } else {
                               link.dst = (link.dst + 1) % m.size;
                             }
                           }});
        if (o.link.kind == LinkId::Kind::kPair) {
          mutants.push_back({"another channel in " + text,
                             [at](Schedule& m) { m.operands[at].link.channel ^= 1; }});
        }
        if (!is_output) {
          mutants.push_back(
              {"peek toggled in " + text, [at](Schedule& m) { m.operands[at].peek ^= true; }});
        }
      }
      if (program.chunks > 1 && o.space != Space::kToken && step.verb != Verb::kPublish &&
          step.verb != Verb::kAwait) {
        mutants.push_back({"another chunk in " + text, [at, &program](Schedule& m) {
                             m.operands[at].chunk = (m.operands[at].chunk + 1) % program.chunks;
                           }});
      }
      if (o.space == Space::kPeerIn || o.space == Space::kPeerOut) {
        mutants.push_back({"another peer in " + text, [at](Schedule& m) {
                             m.operands[at].peer = (m.operands[at].peer + 1) % m.size;
                           }});
      }
      if (!is_output && (o.space == Space::kIn || o.space == Space::kOut)) {
        mutants.push_back({"the other buffer read in " + text, [at](Schedule& m) {
                             Space& space = m.operands[at].space;
                             space = space == Space::kIn ? Space::kOut : Space::kIn;
                           }});
      }
    }
  }
}

// Mutants that pass although the rules above do not say so, each for its own reason.
bool known_exception(const Algorithm& a, int n, const Schedule& s, const std::string& mutant) {
  const auto is = [&](const std::string& prefix) { return mutant.rfind(prefix, 0) == 0; };
  const std::string name = a.name;
  // A barrier's byte means nothing: it may come from whichever buffer.
  if (a.collective == Collective::kBarrier && is("the other buffer read")) return true;
  // The own chunk lies in both buffers.
  if (a.collective == Collective::kAllGather && name == "bruck") {
    return is("the other buffer read in send chunk " + std::to_string(s.rank) + ":");
  }
  // The root has every chunk, so it may be read there; that only loads the root's link.
  if (a.collective == Collective::kBroadcast && name == "window") {
    for (const Step& step : s.steps) {
      if (step.verb != Verb::kCopyFrom) continue;
      const int root = s.inputs(step).front().peer;  // the first that is read from
      const std::string chunk = std::to_string((root + n - 1) % n);
      return is("another peer in copy_from chunk " + chunk + ": rank " + chunk + "'s");
    }
  }
  // With 5 ranks the distances 1, 2, 4 tell rank r of 8 ranks, so of some twice: what comes over
  // distance 2 need not go out over distance 4.
  if (name == "dissemination" && n == 5) {
    return is("exchange recv chunk 0: " + std::to_string((s.rank + 3) % 5) + "->");
  }
  return false;
}

class Mutation : public EachAlgorithm {};

TEST_P(Mutation, IsNoticed) {
  const Algorithm& a = GetParam();
  int noticed = 0, passed = 0;
  for (const int n : {1, 4, 5}) {
    if (!a.supports(n)) continue;
    for (const int root : {0, n / 2}) {
      if (root != 0 && !has_root(a.collective)) continue;
      const Program program = make_program(a, n, root, a.in_place && n == 5);
      for (int rank = 0; rank < n; ++rank) {
        const Schedule& schedule = program.ranks[rank];
        std::vector<Mutant> mutants;
        add_order_mutants(schedule, program, mutants);
        add_step_mutants(schedule, program, mutants);
        add_operand_mutants(schedule, program, mutants);
        for (const Mutant& mutant : mutants) {
          Program changed = program;
          mutant.apply(changed.ranks[rank]);
          if (!check(changed, 2, 2 * n).ok()) {
            ++noticed;
            continue;
          }
          ++passed;
          EXPECT_TRUE(mutant.equivalent || known_exception(a, n, schedule, mutant.what))
              << where(n, root, program.in_place) << " rank " << rank << ": " << mutant.what;
        }
      }
    }
  }
  EXPECT_GE(noticed, 2 * passed);
  RecordProperty("noticed", noticed);
  RecordProperty("equivalent", passed);
}

TR_FOR_EACH_ALGORITHM(Mutation);

}  // namespace
}  // namespace treering::algos
