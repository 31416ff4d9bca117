#include "sim/program.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

namespace treering::sim {
namespace {

using algos::Operand;
using algos::Schedule;
using algos::Space;
using algos::Step;
using algos::Verb;

constexpr std::uint64_t kMaxStoredSteps = 30'000'000;
// LinkKey::kind besides the channels.
constexpr std::int32_t kCast = 1000, kRead = 1001, kWrite = 1002;

// A step, or several that became one message.
struct Run {
  const Step* step = nullptr;
  std::int32_t chunk = 0;
  std::int32_t chunks = 1;
};

std::int32_t chunk_of(const Schedule& s, const Step& step) {
  const auto operands =
      std::span(s.operands).subspan(step.first_operand, step.inputs + step.outputs);
  for (const Operand& o : operands) {
    if (o.space == Space::kLink) return o.chunk;
  }
  return operands.empty() ? 0 : operands.front().chunk;
}

// The one link that a step sends to or receives from; nullptr if it does more than that.
const Operand* only_link(const Schedule& s, const Step& step) {
  const Operand* link = nullptr;
  for (const Operand& o :
       std::span(s.operands).subspan(step.first_operand, step.inputs + step.outputs)) {
    if (o.space != Space::kLink) continue;
    if (link != nullptr || o.peek || o.link.kind != LinkId::Kind::kPair) return nullptr;
    link = &o;
  }
  return link;
}

// Does `b` go on where `a` ends: the same verb over the same link, about the next chunk?
bool continues(const Schedule& s, const Run& a, const Run& b) {
  if (a.step->verb != b.step->verb || a.step->lane != b.step->lane || b.chunk != a.chunk + a.chunks)
    return false;
  const Operand* x = only_link(s, *a.step);
  const Operand* y = only_link(s, *b.step);
  return x != nullptr && y != nullptr && x->link == y->link;
}

void merge_runs(const Schedule& s, std::vector<Run>& runs) {
  std::vector<Run> merged;
  for (std::size_t i = 0; i < runs.size();) {
    std::size_t period = 0;
    for (const std::size_t p : {std::size_t{1}, std::size_t{2}}) {
      bool fits = period == 0 && i + 2 * p <= runs.size();
      for (std::size_t j = 0; fits && j < p; ++j) fits = continues(s, runs[i + j], runs[i + p + j]);
      if (fits) period = p;
    }
    const std::size_t width = std::max<std::size_t>(period, 1), first = merged.size();
    for (std::size_t j = 0; j < width; ++j) merged.push_back(runs[i + j]);
    i += width;
    while (period > 0 && i + period <= runs.size()) {
      bool fits = true;
      for (std::size_t j = 0; fits && j < period; ++j)
        fits = continues(s, merged[first + j], runs[i + j]);
      if (!fits) break;
      for (std::size_t j = 0; j < period; ++j) merged[first + j].chunks += runs[i + j].chunks;
      i += period;
    }
  }
  runs = std::move(merged);
}

// A hash of 128 bits: equal programs are told by it alone.
struct Hash {
  std::uint64_t a = 0x9e3779b97f4a7c15u, b = 0xc2b2ae3d27d4eb4fu;
  void add(std::int64_t value) {
    const auto v = static_cast<std::uint64_t>(value);
    a = (a ^ v) * 0xff51afd7ed558ccdu;
    a ^= a >> 32;
    b = (b + v) * 0xc4ceb9fe1a85ec53u;
    b ^= b >> 29;
  }
};

struct KeyHash {
  std::size_t operator()(const LinkKey& k) const {
    Hash h;
    h.add(k.src);
    h.add(k.dst);
    h.add(k.kind);
    return h.a;
  }
};

class Compiler {
 public:
  explicit Compiler(const Workload& workload) : w_(workload) {
    is_relative_ =
        !workload.share_by_size && static_cast<int>(workload.chunk_bytes.size()) == workload.ranks;
    prefix_.assign(1, 0);
    for (const std::uint64_t bytes : workload.chunk_bytes)
      prefix_.push_back(prefix_.back() + bytes);
  }

  Result<Programs> run() {
    for (int rank = 0; rank < w_.ranks; ++rank) TR_RETURN_IF_ERROR(add(rank));
    return std::move(out_);
  }

 private:
  std::int32_t relative(int peer, int rank) const { return algos::mod(peer - rank, w_.ranks); }

  // The rank's number of a link or window; -1 if the peer does not exist.
  std::int32_t local_link(int rank, std::int32_t src, std::int32_t dst, std::int32_t kind) {
    if (src < 0 || dst < 0 || src >= w_.ranks || dst >= w_.ranks || src == dst) return -1;
    const LinkKey key{src, dst, kind};
    const auto [global, is_new] =
        global_.try_emplace(key, static_cast<std::int32_t>(out_.links.size()));
    if (is_new) out_.links.push_back(key);
    const auto [local, first] =
        local_.try_emplace(global->second, static_cast<std::int32_t>(table_.size()));
    if (first) {
      table_.push_back(global->second);
      const bool is_out = src == rank;
      hash_.add((std::int64_t{relative(is_out ? dst : src, rank)} * 4096 + kind) * 2 + is_out);
    }
    return local->second;
  }

  Status add_operand(int rank, const Operand& o, bool is_input, ProgramStep& step) {
    const auto push = [&](Use use, std::int32_t src, std::int32_t dst,
                          std::int32_t kind) -> Status {
      const std::int32_t link = local_link(rank, src, dst, kind);
      if (link < 0) {
        return invalid_argument(w_.name + ": rank " + std::to_string(rank) + " has a link " +
                                std::to_string(src) + "->" + std::to_string(dst) + " with " +
                                std::to_string(w_.ranks) + " ranks");
      }
      program_.operands.push_back({use, o.peek, link});
      ++(is_input ? step.inputs : step.outputs);
      return {};
    };
    switch (o.space) {
      case Space::kOut:
        if (!is_input) step.writes = true;
        return {};
      case Space::kPeerIn:
      case Space::kPeerOut:
        return is_input ? push(Use::kRead, o.peer, rank, kRead)
                        : push(Use::kWrite, rank, o.peer, kWrite);
      case Space::kLink:
        break;
      default:
        return {};
    }
    if (o.link.kind != LinkId::Kind::kCast) {
      return push(Use::kLink, o.link.src, o.link.dst, o.link.channel);
    }
    if (is_input) return push(Use::kLink, o.link.src, rank, kCast);
    step.cast = true;
    for (int i = 1; i < w_.ranks; ++i) {
      TR_RETURN_IF_ERROR(push(Use::kLink, rank, algos::mod(rank + i, w_.ranks), kCast));
    }
    return {};
  }

  Status add_step(int rank, const Schedule& s, const Run& run) {
    ProgramStep step;
    step.verb = run.step->verb;
    step.lane = run.step->lane;
    step.token = step.verb == Verb::kPublish || step.verb == Verb::kAwait;
    step.relative = is_relative_ && !step.token;
    step.first_chunk = step.relative ? relative(run.chunk, rank) : run.chunk;
    step.chunks = run.chunks;
    step.first_operand = static_cast<std::int32_t>(program_.operands.size());
    const bool folds = step.verb == Verb::kRecvReduceSend || step.verb == Verb::kRecvReduceCopy ||
                       step.verb == Verb::kRecvReduceCopySend ||
                       step.verb == Verb::kReduceFromAll || step.verb == Verb::kReduceStoreAll;
    step.folds = static_cast<std::int16_t>(folds ? std::max(0, run.step->inputs - 1) : 0);
    // In the order seen from the rank; in which order a step folds does not matter here.
    std::vector<Operand> inputs(s.inputs(*run.step).begin(), s.inputs(*run.step).end());
    const auto source = [&](const Operand& o) {
      return o.space == Space::kLink ? relative(o.link.src, rank)
             : o.peer >= 0           ? relative(o.peer, rank)
                                     : 0;
    };
    std::stable_sort(inputs.begin(), inputs.end(),
                     [&](const Operand& a, const Operand& b) { return source(a) < source(b); });
    for (const Operand& o : inputs) TR_RETURN_IF_ERROR(add_operand(rank, o, true, step));
    for (const Operand& o : s.outputs(*run.step)) {
      TR_RETURN_IF_ERROR(add_operand(rank, o, false, step));
    }
    for (const std::int64_t v :
         {std::int64_t{static_cast<int>(step.verb)}, std::int64_t{step.lane}, chunk_key(step),
          std::int64_t{step.chunks}, std::int64_t{step.inputs}, std::int64_t{step.outputs},
          std::int64_t{step.writes}, std::int64_t{step.folds}}) {
      hash_.add(v);
    }
    for (std::size_t i = step.first_operand; i < program_.operands.size(); ++i) {
      hash_.add(program_.operands[i].link * 8 + program_.operands[i].peek * 4 +
                static_cast<int>(program_.operands[i].use));
    }
    program_.steps.push_back(step);
    return {};
  }

  std::int64_t chunk_key(const ProgramStep& step) const {
    if (!w_.share_by_size || step.token) return step.first_chunk;
    return static_cast<std::int64_t>(prefix_[step.first_chunk + step.chunks] -
                                     prefix_[step.first_chunk]);
  }

  // Backwards: where a link is used last, and so until when the next round must wait.
  void set_gates() {
    std::unordered_map<std::int32_t, std::int32_t> last;
    for (auto i = static_cast<std::int32_t>(program_.steps.size()); i-- > 0;) {
      ProgramStep& step = program_.steps[i];
      for (std::int32_t k = 0; k < step.inputs + step.outputs; ++k) {
        const ProgramOperand& o = program_.operands[step.first_operand + k];
        if (o.use != Use::kLink) continue;
        step.gate = std::max(step.gate, last.try_emplace(o.link, i).first->second);
      }
    }
  }

  Status add(int rank) {
    const Schedule s = w_.record(rank);
    std::vector<Run> runs;
    runs.reserve(s.steps.size());
    for (const Step& step : s.steps) runs.push_back({&step, chunk_of(s, step), 1});
    std::stable_sort(runs.begin(), runs.end(),
                     [](const Run& a, const Run& b) { return a.step->lane < b.step->lane; });
    if (w_.merge) merge_runs(s, runs);
    program_ = {};
    local_.clear();
    table_.clear();
    hash_ = {};
    for (const Run& run : runs) {
      while (program_.lane_begin.size() <= static_cast<std::size_t>(run.step->lane)) {
        program_.lane_begin.push_back(static_cast<std::int32_t>(program_.steps.size()));
      }
      TR_RETURN_IF_ERROR(add_step(rank, s, run));
      if (out_.links.size() > kMaxLinks) return too_large("links between ranks", kMaxLinks);
    }
    while (program_.lane_begin.size() <= static_cast<std::size_t>(std::max(s.lanes, 1))) {
      program_.lane_begin.push_back(static_cast<std::int32_t>(program_.steps.size()));
    }
    out_.steps += program_.steps.size();
    const auto [known, is_new] =
        known_.try_emplace({hash_.a, hash_.b}, static_cast<std::int32_t>(out_.programs.size()));
    if (is_new) {
      stored_ += program_.steps.size() + program_.operands.size();
      if (stored_ > kMaxStoredSteps) return too_large("steps that differ", kMaxStoredSteps);
      set_gates();
      out_.programs.push_back(std::move(program_));
    }
    out_.of_rank.push_back(known->second);
    out_.rank_links.push_back(table_);
    return {};
  }

  Status too_large(const char* what, std::uint64_t most) const {
    return unsupported(w_.name + " with " + std::to_string(w_.ranks) + " ranks has more than " +
                       std::to_string(most) + " " + what + ": simulate fewer ranks" +
                       (w_.merge ? "" : ", or merge chunks into one message (--merge)"));
  }

  const Workload& w_;
  bool is_relative_ = false;
  std::vector<std::uint64_t> prefix_;  // of chunk_bytes
  Programs out_;
  std::unordered_map<LinkKey, std::int32_t, KeyHash> global_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::int32_t> known_;
  std::uint64_t stored_ = 0;
  // Of the rank at hand.
  Program program_;
  std::unordered_map<std::int32_t, std::int32_t> local_;
  std::vector<std::int32_t> table_;
  Hash hash_;
};

}  // namespace

Result<Programs> compile(const Workload& workload) { return Compiler(workload).run(); }

}  // namespace treering::sim
