// The network that a program is: lanes as processes, links as bounded FIFOs, and its maximal run.
//
// A lane runs its steps in order, and a step its slices 0..k-1 in order. A slice of a step runs
// when each of its input links holds a message for it and each of its output links has a free slot;
// it then takes and posts one message per link. A cast's slot is free again when every other rank
// has taken the message. The steps of a round follow those of the round before.
//
// Why one run proves the absence of deadlock for all timings, executors and numbers of rounds:
//
// (1) Timing. This is a bounded Kahn network: a link has one writing lane, and one reading lane on
// each rank that reads it. So nobody but the lane itself can take away a message or a free slot
// that it waits for: a slice that can run stays able to run until it does. Hence all maximal runs
// execute the same slices and move the same messages, and if one of them ends with every lane at
// its end, all do.
//
// (2) Rounds. One round ends with all links empty (checked), as it began. So the run that lets all
// lanes finish a round before the next begins completes, and by (1) so do all others.
//
// (3) Fewer messages. A chunk that is empty, or has fewer than k slices in some call, drops its
// slices at both ends of every link. The complete run without them is a run of the smaller network,
// for no link holds more messages than before.
//
// (4) Overtaking. The executor lets round j+1 of a lane overtake round j (and operation j+1
// operation j) as long as every link keeps its order: the younger runs a step only when the older
// has passed its last step on that step's links. It begins a fixed number of rounds at a time. Let
// w be the complete run of one round after the other. Suppose the executor stands still with slices
// left, and let t be the first slice of w that it has not run. Everything before t in w it has run.
// On the links that t writes it has posted just what w posts before t, for what follows t there
// waits for t by the rule; and their readers have taken at least what they take in w before t. So
// t's messages are there, its slots are free, the rule admits it and its round is begun, since all
// older rounds of the lane come before t in w: t can run, a contradiction.
//
// A peek looks at a message without taking it. It is done by the lane that takes the message, so
// (1) holds.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "algos/program.hpp"
#include "core/link_id.hpp"
#include "core/status.hpp"

namespace treering::algos {

inline constexpr int kUnlimitedSlots = std::numeric_limits<int>::max();

class Network {
 public:
  // A link operand of a slice that runs: which link, and the number of the message on it.
  struct Message {
    std::int32_t link = -1;  // 0..links()-1; -1: the operand is no link
    std::int32_t number = 0;
  };
  struct Event {
    int process = 0;
    int rank = 0;
    const Step* step = nullptr;
    std::span<const Operand> inputs, outputs;
    std::span<const Message> in_messages, out_messages;  // parallel to inputs and outputs
  };
  // Hears every slice when it runs; an error ends the run.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual Status on_step(const Event& event) = 0;
  };

  // Fails where a program is not a network: a link to itself, to a rank that does not exist or used
  // by two lanes at one end, a buffer that cannot be read or written, ... `program` must outlive
  // the network.
  static Result<Network> build(const Program& program);

  // One maximal run. Fails with the reason if a lane stands still or a message is left over.
  Status run(int slices, int slots, int rounds, Observer* observer = nullptr) const;

  const Program& program() const { return *program_; }
  int processes() const { return static_cast<int>(processes_.size()); }
  int process_rank(int process) const { return processes_[process].rank; }
  int links() const { return static_cast<int>(links_.size()); }
  const LinkId& link_id(int link) const { return links_[link].id; }
  // "rank 2 lane 0 step 5 (recv_reduce_send chunk 3: 1->2, in[3] => 2->3)"
  std::string describe(int process, const Step& step) const;

 private:
  friend class NetworkBuilder;
  friend class NetworkRun;

  struct Process {
    int rank = 0;
    int lane = 0;
    std::vector<const Step*> steps;
  };
  struct Link {
    LinkId id;
    int writer = -1;     // process
    int first_port = 0;  // its readers are ports_[first_port..first_port + port_count)
    int port_count = 0;
  };
  struct Port {
    int link = 0;
    int rank = 0;
    int reader = -1;  // process
  };

  explicit Network(const Program& program) : program_(&program) {}
  std::span<const int> refs(int rank, const Step& step) const {
    return std::span(refs_[rank]).subspan(step.first_operand, step.inputs + step.outputs);
  }

  const Program* program_;
  std::vector<Process> processes_;  // by rank, then by lane
  std::vector<Link> links_;
  std::vector<Port> ports_;
  // refs_[rank][i] for operand i of rank's schedule: a link input's port, a link output's link,
  // else -1.
  std::vector<std::vector<int>> refs_;
};

}  // namespace treering::algos
