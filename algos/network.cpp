#include "algos/network.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace treering::algos {

class NetworkBuilder {
 public:
  explicit NetworkBuilder(const Program& program) : program_(program), network_(program) {}

  Result<Network> build() {
    for (int rank = 0; rank < program_.size(); ++rank) TR_RETURN_IF_ERROR(add_rank(rank));
    return std::move(network_);
  }

 private:
  Status add_rank(int rank) {
    const Schedule& schedule = program_.ranks[rank];
    const int first_process = network_.processes();
    if (schedule.rank != rank || schedule.size != program_.size()) {
      return invalid_argument("schedule " + std::to_string(rank) + " of " +
                              std::to_string(program_.size()) + " says that it is of rank " +
                              std::to_string(schedule.rank) + " of " +
                              std::to_string(schedule.size));
    }
    for (int lane = 0; lane < schedule.lanes; ++lane) {
      network_.processes_.push_back({rank, lane, {}});
    }
    network_.refs_.emplace_back(schedule.operands.size(), -1);
    for (const Step& step : schedule.steps) {
      if (step.lane < 0 || step.lane >= schedule.lanes) {
        return invalid_argument("rank " + std::to_string(rank) + " has a step in lane " +
                                std::to_string(step.lane) + " of " +
                                std::to_string(schedule.lanes));
      }
      const int process = first_process + step.lane;
      network_.processes_[process].steps.push_back(&step);
      const Status status = add_step(process, step);
      if (!status.ok()) return status.with_context(network_.describe(process, step));
    }
    return {};
  }

  Status add_step(int process, const Step& step) {
    const int rank = network_.process_rank(process);
    const Schedule& schedule = program_.ranks[rank];
    if (step.inputs < 1 || step.outputs < 1) {
      return invalid_argument("a step has at least one input and one output");
    }
    const bool signal = step.verb == Verb::kPublish || step.verb == Verb::kAwait;
    if (signal && step.last == Last::kYes)
      return invalid_argument("it folds nothing that could end");
    // Parts of an all-to-all have another number at the other rank; here all have the same size.
    const bool renames = step.verb == Verb::kCopyFrom &&
                         program_.collective == Collective::kAllToAll && !program_.uneven;
    int subject = -1;
    for (int i = 0; i < step.inputs + step.outputs; ++i) {
      const Operand& o = schedule.operands[step.first_operand + i];
      const bool is_output = i >= step.inputs;
      int& ref = network_.refs_[rank][step.first_operand + i];
      if (o.space == Space::kToken) continue;
      if (o.space == Space::kLink) {
        TR_RETURN_IF_ERROR(add_link(process, o, is_output, &ref));
        for (int j = is_output ? step.inputs : 0; j < i; ++j) {
          if (network_.refs_[rank][step.first_operand + j] == ref) {
            return invalid_argument("it names the link " + to_string(o.link) + " twice");
          }
        }
        if (signal) continue;
      } else {
        TR_RETURN_IF_ERROR(check_buffer(rank, o, is_output));
      }
      if (o.chunk < 0 || o.chunk >= program_.chunks) {
        return invalid_argument("there is no chunk " + std::to_string(o.chunk) + " of " +
                                std::to_string(program_.chunks));
      }
      if (subject >= 0 && o.chunk != subject && !renames) {
        return invalid_argument("it is about the chunks " + std::to_string(subject) + " and " +
                                std::to_string(o.chunk) + " at once");
      }
      subject = o.chunk;
    }
    return {};
  }

  Status check_buffer(int rank, const Operand& o, bool is_output) const {
    const bool of_peer = o.space == Space::kPeerIn || o.space == Space::kPeerOut;
    if (of_peer && (o.peer < 0 || o.peer >= program_.size() || o.peer == rank)) {
      return invalid_argument("rank " + std::to_string(o.peer) + " is no peer");
    }
    const int owner = of_peer ? o.peer : rank;
    const bool in = o.space == Space::kIn || o.space == Space::kPeerIn;
    const bool out = o.space == Space::kOut || o.space == Space::kPeerOut;
    if (in && is_output) return invalid_argument("it writes to a send buffer");
    if (!in && !out) return invalid_argument("it names no place");
    if (in ? !has_in(program_, owner, o.chunk) : !has_out(program_, owner, o.chunk)) {
      return invalid_argument("rank " + std::to_string(owner) + " has no chunk " +
                              std::to_string(o.chunk) + " in its " + (in ? "send" : "receive") +
                              " buffer");
    }
    return {};
  }

  Status add_link(int process, const Operand& o, bool is_output, int* ref) {
    const int rank = network_.process_rank(process), size = program_.size();
    const LinkId& id = o.link;
    const bool pair = id.kind == LinkId::Kind::kPair;
    if (id.kind == LinkId::Kind::kSendRecv) {
      return invalid_argument("the link " + to_string(id) + " belongs to tr_send and tr_recv");
    }
    if (id.channel >= (pair ? kPairChannels : 1)) {
      return invalid_argument("the link " + to_string(id) + " does not exist");
    }
    if (id.src < 0 || id.src >= size || (pair && (id.dst < 0 || id.dst >= size))) {
      return invalid_argument("the link " + to_string(id) +
                              " is not between ranks of this program");
    }
    if (pair && id.src == id.dst) {
      return invalid_argument("the link " + to_string(id) + " goes to its own rank");
    }
    const bool own_end = is_output ? id.src == rank : pair ? id.dst == rank : id.src != rank;
    if (!own_end) {
      return invalid_argument("this rank does not " + std::string(is_output ? "write" : "read") +
                              " the link " + to_string(id));
    }
    const int link = link_index(id);
    int* user = nullptr;
    if (is_output) {
      *ref = link;
      user = &network_.links_[link].writer;
    } else {
      *ref = network_.links_[link].first_port + (pair ? 0 : rank < id.src ? rank : rank - 1);
      user = &network_.ports_[*ref].reader;
    }
    if (*user >= 0 && *user != process) {
      return invalid_argument("lane " + std::to_string(network_.processes_[*user].lane) +
                              " uses the link " + to_string(id) + " too");
    }
    *user = process;
    return {};
  }

  int link_index(const LinkId& id) {
    const auto [known, fresh] = known_.try_emplace(id, network_.links());
    if (fresh) {
      Network::Link link;
      link.id = id;
      link.first_port = static_cast<int>(network_.ports_.size());
      if (id.kind == LinkId::Kind::kPair) {
        network_.ports_.push_back({known->second, id.dst, -1});
      } else {
        for (int q = 0; q < program_.size(); ++q) {
          if (q != id.src) network_.ports_.push_back({known->second, q, -1});
        }
      }
      link.port_count = static_cast<int>(network_.ports_.size()) - link.first_port;
      network_.links_.push_back(link);
    }
    return known->second;
  }

  const Program& program_;
  Network network_;
  std::map<LinkId, int> known_;
};

Result<Network> Network::build(const Program& program) { return NetworkBuilder(program).build(); }

std::string Network::describe(int process, const Step& step) const {
  const Process& p = processes_[process];
  const auto at = std::find(p.steps.begin(), p.steps.end(), &step);
  return "rank " + std::to_string(p.rank) + " lane " + std::to_string(p.lane) + " step " +
         std::to_string(at - p.steps.begin()) + " (" + to_string(program_->ranks[p.rank], step) +
         ")";
}

}  // namespace treering::algos
