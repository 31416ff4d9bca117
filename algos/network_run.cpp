#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "algos/network.hpp"

namespace treering::algos {

// One maximal run: lanes run until they wait; a message or a freed slot wakes the lane that waits
// for it.
class NetworkRun {
 public:
  NetworkRun(const Network& network, int slices, int slots, int rounds, Network::Observer* observer)
      : network_(network),
        slices_(slices),
        slots_(slots),
        rounds_(rounds),
        observer_(observer),
        lanes_(network.processes_.size()),
        posted_(network.links_.size(), 0),
        released_(network.links_.size(), 0),
        taken_(network.ports_.size(), 0) {}

  Status run() {
    for (int process = 0; process < network_.processes(); ++process) wake(process);
    while (!ready_.empty()) {
      const int process = ready_.back();
      ready_.pop_back();
      TR_RETURN_IF_ERROR(advance(process));
    }
    for (int process = 0; process < network_.processes(); ++process) {
      if (!ended(process)) return deadlock(process);
    }
    return left_over();
  }

 private:
  struct Lane {
    int round = 0;
    std::size_t step = 0;
    int slice = 0;
    int operand = 0;  // those before it are ready and stay so
    bool awake = false;
  };

  bool ended(int process) const {
    return lanes_[process].round == rounds_ || network_.processes_[process].steps.empty();
  }
  const Step& step_of(int process) const {
    return *network_.processes_[process].steps[lanes_[process].step];
  }
  std::span<const int> refs_of(int process) const {
    return network_.refs(network_.process_rank(process), step_of(process));
  }
  const Operand& operand_of(int process, int i) const {
    const Schedule& schedule = network_.program().ranks[network_.process_rank(process)];
    return schedule.operands[step_of(process).first_operand + i];
  }

  void wake(int process) {
    if (process < 0 || lanes_[process].awake || ended(process)) return;
    lanes_[process].awake = true;
    ready_.push_back(process);
  }

  Status advance(int process) {
    Lane& lane = lanes_[process];
    while (!ended(process)) {
      if (!can_run(process)) {
        lane.awake = false;
        return {};
      }
      TR_RETURN_IF_ERROR(execute(process));
      lane.operand = 0;
      if (++lane.slice < slices_) continue;
      lane.slice = 0;
      if (++lane.step < network_.processes_[process].steps.size()) continue;
      lane.step = 0;
      ++lane.round;
    }
    return {};
  }

  bool can_run(int process) {
    Lane& lane = lanes_[process];
    const auto refs = refs_of(process);
    const int inputs = step_of(process).inputs;
    for (; lane.operand < static_cast<int>(refs.size()); ++lane.operand) {
      const int ref = refs[lane.operand];
      if (ref < 0) continue;
      if (lane.operand < inputs ? !has_message(process, ref) : !has_room(ref)) return false;
    }
    return true;
  }

  int next_number(int process, int operand, int port) const {
    return taken_[port] + (operand_of(process, operand).peek ? lanes_[process].slice : 0);
  }
  bool has_message(int process, int port) const {
    return posted_[network_.ports_[port].link] >
           next_number(process, lanes_[process].operand, port);
  }
  bool has_room(int link) {
    if (posted_[link] - released_[link] < slots_) return true;
    const Network::Link& l = network_.links_[link];
    int lowest = posted_[link];
    for (int i = 0; i < l.port_count; ++i) lowest = std::min(lowest, taken_[l.first_port + i]);
    released_[link] = lowest;
    return posted_[link] - lowest < slots_;
  }

  Status execute(int process) {
    const Step& step = step_of(process);
    const auto refs = refs_of(process);
    messages_.assign(refs.size(), {});
    for (int i = 0; i < static_cast<int>(refs.size()); ++i) {
      const int ref = refs[i];
      if (ref < 0) continue;
      if (i < step.inputs) {
        messages_[i] = {network_.ports_[ref].link, next_number(process, i, ref)};
        if (operand_of(process, i).peek) continue;
        ++taken_[ref];
        wake(network_.links_[messages_[i].link].writer);
      } else {
        messages_[i] = {ref, posted_[ref]};
        ++posted_[ref];
        const Network::Link& link = network_.links_[ref];
        for (int p = 0; p < link.port_count; ++p) wake(network_.ports_[link.first_port + p].reader);
      }
    }
    if (observer_ == nullptr) return {};
    Network::Event event;
    event.process = process;
    event.rank = network_.process_rank(process);
    event.step = &step;
    const Schedule& schedule = network_.program().ranks[event.rank];
    event.inputs = schedule.inputs(step);
    event.outputs = schedule.outputs(step);
    event.in_messages = std::span(messages_).first(step.inputs);
    event.out_messages = std::span(messages_).subspan(step.inputs);
    const Status status = observer_->on_step(event);
    return status.ok() ? status : status.with_context(network_.describe(process, step));
  }

  // Follows who waits for whom until the circle closes or somebody is at fault.
  Status deadlock(int process) const {
    std::string text = "stands still with " + std::to_string(slices_) +
                       (slices_ == 1 ? " slice a chunk" : " slices a chunk");
    if (slots_ != kUnlimitedSlots)
      text += " and " + std::to_string(slots_) + (slots_ == 1 ? " slot a link" : " slots a link");
    text += ": ";
    std::vector<int> seen;
    for (;;) {
      text += network_.describe(process, step_of(process));
      if (std::find(seen.begin(), seen.end(), process) != seen.end()) {
        return invalid_argument(text + " again: they wait in a circle");
      }
      seen.push_back(process);
      text += " waits for ";
      const int operand = lanes_[process].operand;
      const int ref = refs_of(process)[operand];
      const bool for_message = operand < step_of(process).inputs;
      const int link = for_message ? network_.ports_[ref].link : ref;
      const std::string name = to_string(network_.links_[link].id);
      int next = -1;
      if (for_message) {
        next = network_.links_[link].writer;
        text += "message " + std::to_string(next_number(process, operand, ref)) + " of " + name;
        if (next < 0) return invalid_argument(text + ", where nobody sends");
      } else {
        const int port = slowest_reader(link);
        next = network_.ports_[port].reader;
        text += "a free slot of " + name + ", where rank " +
                std::to_string(network_.ports_[port].rank) + " has received " +
                std::to_string(taken_[port]) + " of " + std::to_string(posted_[link]);
        if (next < 0) return invalid_argument(text + " and never receives");
      }
      if (ended(next)) {
        return invalid_argument(text + ", but rank " + std::to_string(network_.process_rank(next)) +
                                " lane " + std::to_string(network_.processes_[next].lane) +
                                " has ended");
      }
      text += "; ";
      process = next;
    }
  }

  int slowest_reader(int link) const {
    const Network::Link& l = network_.links_[link];
    const auto first = taken_.begin() + l.first_port;
    return static_cast<int>(std::min_element(first, first + l.port_count) - taken_.begin());
  }

  Status left_over() const {
    for (std::size_t port = 0; port < taken_.size(); ++port) {
      const int link = network_.ports_[port].link;
      if (taken_[port] == posted_[link]) continue;
      return invalid_argument(std::to_string(posted_[link]) + " messages are sent on the link " +
                              to_string(network_.links_[link].id) + ", but rank " +
                              std::to_string(network_.ports_[port].rank) + " receives " +
                              std::to_string(taken_[port]));
    }
    return {};
  }

  const Network& network_;
  const int slices_;
  const int slots_;
  const int rounds_;
  Network::Observer* const observer_;
  std::vector<Lane> lanes_;
  std::vector<int> posted_;    // per link
  std::vector<int> released_;  // per link: taken by all readers when last looked at
  std::vector<int> taken_;     // per port
  std::vector<int> ready_;
  std::vector<Network::Message> messages_;
};

Status Network::run(int slices, int slots, int rounds, Observer* observer) const {
  return NetworkRun(*this, slices, slots, rounds, observer).run();
}

}  // namespace treering::algos
