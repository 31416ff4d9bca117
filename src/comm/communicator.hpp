// Communicator: one rank's end of a group of ranks.
//
// It joins the rooms: transport (links), registry and tuner (which schedule), engine (running it),
// and it is the one that fails, aborts and explains. The operations of the API are in
// comm/collectives.hpp.
//
// Threads: one at a time (Guard); abort, async_error and the board may be used by any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "comm/flight.hpp"
#include "comm/placement.hpp"
#include "comm/rank_set.hpp"
#include "comm/request.hpp"
#include "comm/stream.hpp"
#include "comm/survival.hpp"
#include "core/config.hpp"
#include "core/deadline.hpp"
#include "core/host_map.hpp"
#include "core/status.hpp"
#include "engine/device_engine.hpp"
#include "engine/engine.hpp"
#include "engine/plan.hpp"
#include "transports/transport.hpp"
#include "tuner/choice.hpp"
#include "tuner/device_choice.hpp"
#include "tuner/stream_trial.hpp"
#include "tuner/tuning.hpp"

namespace treering {

class Communicator final : public EngineOwner,
                           public StreamUser,
                           public std::enable_shared_from_this<Communicator> {
 public:
  // Collective over the ranks of `rendezvous`.
  // family: of the one that it is split from; 0: this thread's.
  static Result<std::shared_ptr<Communicator>> create(Rendezvous& rendezvous, const Config& config,
                                                      std::uint64_t family = 0);
  // Operations must have been drained.
  ~Communicator() override;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // The library was forked away from under this object: only the parent process may use it.
  Status check_process() const;
  // One thread at a time: whoever sets the flag may call. The table of handles puts its own flag
  // here, so that one flag keeps out second threads and a concurrent destroy.
  void set_entry_flag(std::atomic<bool>* flag) { entry_ = flag; }

  // Holds the entry flag; refuses a second thread and a forked child.
  class Guard {
   public:
    Guard() = default;
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { leave(); }
    Status enter(Communicator& comm);
    void leave();

   private:
    Communicator* comm_ = nullptr;
  };

  // Is this blocking call the last one again, with other buffers? Then run_again is all it needs:
  // small calls are mostly made of decisions.
  bool repeats(Collective collective, Type type, const OpSpec& op, std::int32_t root,
               std::uint64_t count, bool in_place) const {
    const Call& last = scratch_.call;
    return scratch_reusable_ && !looks_at_pointers_ && last.count == count &&
           last.collective == collective && last.type == type && last.op == op.op &&
           last.root == root && scratch_shape_.in_place == in_place &&
           (last.divisor > 1) == op.average && op.op != RedOp::kUser && !op.scaled &&
           !last.scaled && !failed_.load(std::memory_order_relaxed) && engine_->idle();
  }
  Status run_again(const void* in, void* out);
  // Empty: what held the tables of the last blocking call, which nobody uses again.
  std::vector<std::uint64_t> spare_tables() {
    std::vector<std::uint64_t> tables = std::move(scratch_.call.tables);
    tables.clear();
    return tables;
  }

  // Runs a request: to its end when stream is nullptr, else enqueues it. Holds the guard.
  Status launch(Request& request, Stream* stream);
  // Enqueues without waiting; for groups. The caller drives engine() until the ticket is done.
  // `range` begins where the algorithm is known.
  Result<std::shared_ptr<Ticket>> enqueue(Request& request, Stream* stream, Range& range);
  Engine& engine() { return *engine_; }
  RangeOwner range_owner() const { return range_owner_; }
  std::byte* barrier_byte() { return barrier_bytes_; }  // two: one to send, one to receive

  // The key that the links of this communicator prove, and those of communicators from it derive.
  const Secret& link_key() const { return link_key_; }
  // Calls of split so far: the same number on all ranks.
  std::uint64_t splits() const { return splits_; }
  // Collective; colour < 0: nullptr.
  Result<std::shared_ptr<Communicator>> split(int color, int key);
  // comm/survive.cpp. Collective over the ranks that are left: a communicator of them, also when
  // this one has failed. `without`: ranks that are out though they may live. timeout_ms 0: the
  // communicator's. After it, this object is only to be destroyed.
  Result<std::shared_ptr<Communicator>> shrink(const std::vector<int>& without,
                                               std::int64_t timeout_ms);
  const Config& config() const { return config_; }
  Result<int> register_window(void* ptr, std::size_t bytes);  // its index
  Status deregister_window(int index);

  // Does the request work on device memory? An error where its buffers and stream do not fit.
  Result<bool> is_on_device(const Request& request, const Stream* stream) const;
  // Starts collectives without waiting, in issue order: one kernel where that can be.
  Status enqueue_on_device(std::span<Request* const> requests, Stream* stream, Range& range);
  // The same for sends and receives, which progress together, in one kernel.
  struct Message {
    Request* request = nullptr;
    Stream* stream = nullptr;
  };
  Status enqueue_messages(std::span<const Message> messages, Range& range);
  // Until all calls without a stream are done.
  Status wait_for_device();

  Status set_algorithm(const std::string& collective, const std::string& algorithm);
  Status set_ordered(bool ordered);
  Status set_copy_engine(std::int64_t use);
  Status set_timeout_ms(std::int64_t timeout_ms);  // 0: never
  Status set_warn_ms(std::int64_t warn_ms);        // 0: never

  Status finalize();
  // Tells the peers that this rank will do no more; at destruction and at the process's exit. Takes
  // at most so long to get to other hosts what is on its way.
  void mark_left(std::chrono::milliseconds limit);
  void abort();
  bool was_aborted() const { return aborted_.load(std::memory_order_acquire); }  // pairs with abort
  Status async_error() const override;
  // Beyond async_error: did ranks call different operations that nobody waited in?
  Status check_past_calls();
  // Writes the flight record, with all ranks' boards, to `path`; an error without
  // TR_FLIGHT_RECORDER.
  Status save_flight(const std::string& path) const;
  Status watch() override;
  Status settle() override;
  // Valid until the next call of explain.
  const char* explain();

  Status on_slow_wait(const Operation& op, std::chrono::nanoseconds waited) override;
  Status on_failure(const Operation& op, const Status& cause) override;
  void on_complete(const Operation& op) override;
  bool waits_in_vain(const Operation& op) override;

 private:
  Communicator(int rank, int size, const Config& config)
      : rank_(rank), size_(size), config_(config) {}

  // comm/device.cpp, device_calls.cpp
  Status connect_devices(Rendezvous& rendezvous);
  Result<bool> fit_channels(Rendezvous& rendezvous, int* channels);
  Status connect_copies(Rendezvous& rendezvous);
  Status prepare_on_device(Request& request, DevicePlan* plan);
  // Numbers the call, and shows it on the board; its signature.
  std::uint64_t post_on_device(const Request& request, const DevicePlan& plan, std::uint64_t place,
                               const Stream* stream);
  Status start_copy(Request& request, const DevicePlan& plan, Stream* stream);
  Status launch_on_device(Request& request, Stream* stream);
  Status fail_on_device(const Status& cause);
  // An error if the communicator has failed, on whichever engine: what a kernel on a caller's
  // stream reported, the host engine and the other ranks learn at the latest here.
  Status check_usable();
  DeviceChoiceInput device_choice_input(const Request& request) const;
  DeviceChoiceInput device_choice_input(const ChoiceInput& call, std::size_t elem_bytes) const;
  Result<DevicePlan> device_plan_for(const Request& request) const;
  void* use_stream(Stream* stream);

  Config config_of(const std::vector<int>& ranks) const;
  ChoiceInput choice_input(const Request& request) const;
  Result<Choice> choose_for(const Request& request) const;
  Result<const Plan*> plan_for(const Request& request, const Choice& choice);
  Result<const Plan*> sendrecv_plan(int peer, bool is_send);
  // Fills op from the request: plan, geometry, partitions, signature, board.
  Status prepare(Request& request, Operation& op);
  // prepare for scratch_, at less cost when the call has the same shape as the last one.
  Status prepare_scratch(Request& request);
  void rewind_scratch(const std::byte* in, std::byte* out);
  Status run_scratch();
  // Returns the call's signature: a hash of it and of all calls before it.
  std::uint64_t post_call(std::uint64_t kind, std::uint64_t count, std::uint64_t place = 0);
  // comm/windows.cpp
  Result<bool> register_on_device(const void* ptr, Rendezvous& all) const;
  Status find_windows(Request& request) const;
  bool in_windows(const Request& request) const;

  // comm/survive.cpp
  bool has_gone(int rank);  // its process ended, or it destroyed its communicator
  RankSet gone_ranks();
  Status check_interrupted(std::uint64_t aborts, const char* call) const;
  Status decide(Survival& s, Deadline deadline, std::int64_t timeout_ms, std::uint64_t aborts);
  Result<std::shared_ptr<Communicator>> form(const Survival& s, Deadline deadline,
                                             std::uint64_t aborts);
  void publish(const Survival& s);
  void retire(const char* why);

  // comm/report.cpp: the texts.
  std::string describe(const Operation& op) const;
  std::string hang_report(const Operation& op, std::chrono::nanoseconds waited);
  Status check_peers(const Operation& op, std::chrono::nanoseconds waited);
  void note_wait(const Operation& op, const Operation::Wait& wait, std::chrono::nanoseconds waited);
  bool others_moved(const Operation::Wait& wait);
  // The number that boards know it by.
  static std::uint64_t operation_of(const Operation& op) {
    return op.call.collective == Collective::kSendRecv ? kNoOperation : op.sequence;
  }
  // comm/mismatch.cpp
  Status compare_calls() const;
  Status compare_call(std::uint64_t sequence) const;
  int rank_of_another_history() const;  // -1: none
  // comm/identity.cpp
  Status introduce(std::uint64_t communicator);
  void forget();  // at the end
  static std::uint64_t family_of_this_thread();
  void note_elsewhere(const Operation& op) const;
  void save_flight() const;

  const int rank_;
  const int size_;
  Config config_;
  RangeOwner range_owner_ = 0;
  std::unique_ptr<Transport> transport_;
  std::optional<HostMap> hosts_;  // set when the transport is there
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<DeviceEngine> device_;
  std::string why_fewer_channels_;       // than usual, on the device
  std::string why_no_copies_;            // by copy engines; the same on all ranks
  std::atomic<bool> has_copied_{false};  // by copy engines
  bool looks_at_pointers_ = false;       // there are GPUs: whose memory a buffer is decides
  Operation scratch_;                    // of blocking calls
  std::map<std::tuple<const algos::Algorithm*, int>, std::unique_ptr<Plan>> plans_;
  std::map<std::pair<int, bool>, std::unique_ptr<Plan>> sendrecv_plans_;  // (peer, is_send)
  struct Recent {
    const algos::Algorithm* algorithm = nullptr;
    int root = -1;
    const Plan* plan = nullptr;
  };
  Recent recent_[kNumCollectives];
  // The call that scratch_ is prepared for: the same call with other buffers needs no new
  // decisions. That is most of a small call's cost.
  struct Shape {
    std::uint64_t kind = 0;
    std::uint64_t count = 0;
    bool in_place = false;
    bool commutative = false;
    bool operator==(const Shape&) const = default;
  };
  Shape scratch_shape_;
  std::uint64_t scratch_kind_ = 0;  // as it goes to the board and into signatures
  RangeName scratch_range_;
  bool scratch_may_stream_ = false;  // long enough for StreamTrial
  StreamTrial stream_trial_;
  bool scratch_reusable_ = false;
  Board* board_ = nullptr;  // this rank's
  std::optional<Placement> placement_;
  std::string forced_[kNumCollectives];
  std::vector<WindowMap> windows_;
  struct LocalWindow {
    const std::byte* ptr = nullptr;  // nullptr: deregistered
    std::size_t bytes = 0;
  };
  std::vector<LocalWindow> local_windows_;
  Secret link_key_{};
  std::uint64_t splits_ = 0;
  std::uint64_t sequence_ = 0;    // collectives issued
  std::uint64_t waited_for_ = 0;  // so many of them, when wait_for_device waits no longer
  std::uint64_t family_ = 0;      // see comm/identity.cpp
  std::uint64_t history_ = 0;     // of the calls, as on the board
  bool warned_ = false;           // of the operation that waits
  // Of slow waits: the last one's length so far, when to look at the others again, what they had
  // moved by the last look, and when that last grew.
  std::chrono::nanoseconds waited_before_{0};
  std::chrono::nanoseconds next_look_{0};
  std::vector<std::uint64_t> seen_moves_;
  std::chrono::steady_clock::time_point others_moved_at_;
  std::uint64_t last_flight_ = 0;           // its entry of the last operation issued
  std::unique_ptr<FlightRecorder> flight_;  // null: not asked for
  std::byte barrier_bytes_[2]{};
  std::uint64_t forks_ = 0;  // of the process when this was made
  std::string explanation_;
  std::optional<Tuning> tuning_;  // rank 0's, so that all choose alike

  std::atomic<bool> own_entry_{false};
  std::atomic<bool>* entry_ = &own_entry_;
  std::atomic<bool> aborted_{false};
  std::atomic<std::uint64_t> aborts_{0};  // calls of abort: ends a shrink that was under way
  std::unique_ptr<Survival> survival_;
  std::atomic<bool> failed_{false};  // release: failure_ is set
  mutable std::mutex failure_mutex_;
  Status failure_;
};

// Over some ranks of an existing communicator, by its send/recv links: for split and windows.
class SubsetRendezvous final : public Rendezvous {
 public:
  // members: ranks of parent, this rank among them; the index is the rank here. part_of: what the
  // user called, for errors.
  SubsetRendezvous(Communicator& parent, std::vector<int> members, const char* part_of);
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  Result<std::vector<std::string>> all_gather(const std::string& blob) override;
  bool interrupted() const override { return parent_.was_aborted(); }
  Secret link_key() const override { return link_key_; }

 private:
  Communicator& parent_;
  std::vector<int> members_;
  const char* part_of_;
  int rank_ = 0;
  Secret link_key_;
};

}  // namespace treering
