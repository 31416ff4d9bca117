#include "comm/communicator.hpp"

#include <algorithm>
#include <cstdio>
#include <pthread.h>
#include <utility>

#include "algos/point_to_point.hpp"
#include "algos/trace_prims.hpp"
#include "comm/call_deadline.hpp"
#include "comm/settings.hpp"
#include "comm/signature.hpp"
#include "core/log.hpp"
#include "transports/process.hpp"
#include "transports/registry.hpp"

namespace treering {
namespace {

constexpr std::size_t kDefaultLinkBytes = 128 << 10;
constexpr std::size_t kDefaultCastBytes = 256 << 10;
constexpr std::size_t kSendRecvBytes = 128 << 10;
constexpr std::size_t kSendRecvSlice = 32 << 10;
// How long a rank that leaves sees to it that other hosts have what it has posted.
constexpr std::chrono::milliseconds kLeaveFailed(500);
constexpr std::chrono::milliseconds kLeaveAtLast = std::chrono::hours(24);

std::atomic<std::uint64_t> g_forks{0};

std::uint64_t forks_of_this_process() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return g_forks.load(std::memory_order_relaxed);
}

// A rank that spins for long keeps a core from the very rank that it waits for when there are more
// ranks than cores.
int spin_for(const Placement& placement, const Config& config) {
  if (config.spin >= 0) return static_cast<int>(config.spin);
  return placement.more_ranks_than_cores() ? 40 : 2000;
}

// nullptr: it sends or receives.
const char* algorithm_of(const Operation& op) {
  const algos::Algorithm* algorithm = op.plan().algorithm();
  return algorithm != nullptr ? algorithm->name : nullptr;
}

// Tests may have algorithms see several hosts where all ranks share memory.
Result<HostMap> hosts_of(const Transport& transport, int size, const Config& config) {
  if (config.test_hosts.empty()) return HostMap(transport.host_of_rank());
  Result<HostMap> hosts = HostMap::parse(config.test_hosts);
  if (!hosts.ok()) return hosts.status().with_context("TR_TEST_HOSTS");
  if (hosts.value().ranks() == size) return hosts;
  return invalid_argument("TR_TEST_HOSTS=" + config.test_hosts + " is about " +
                          std::to_string(hosts.value().ranks()) + " ranks, the communicator has " +
                          std::to_string(size));
}

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::create(Rendezvous& rendezvous,
                                                           const Config& config,
                                                           std::uint64_t family) {
  std::shared_ptr<Communicator> comm(
      new Communicator(rendezvous.rank(), rendezvous.size(), config));
  comm->forks_ = forks_of_this_process();
  comm->family_ = family != 0 ? family : family_of_this_thread();
  comm->link_key_ = rendezvous.link_key();
  comm->range_owner_ = make_range_owner(comm->rank_, comm->size_);
  TR_ASSIGN_OR_RETURN(Settings settings, agree_on_settings(rendezvous, config));
  comm->tuning_ = std::move(settings.tuning);
  TransportOptions options;
  options.link_bytes = config.link_bytes > 0 ? config.link_bytes : kDefaultLinkBytes;
  options.cast_bytes = config.cast_bytes > 0 ? config.cast_bytes : kDefaultCastBytes;
  options.sendrecv_bytes = kSendRecvBytes;
  options.host_id = config.host_id;
  options.interfaces = config.interfaces;
  options.ports = config.ports;
  options.sockets = static_cast<int>(config.sockets);
  options.checksum = config.checksum;
  options.timeout_ms = static_cast<int>(config.init_timeout_ms);
  TR_ASSIGN_OR_RETURN(comm->transport_, connect_transport(rendezvous, options));
  comm->board_ = &comm->transport_->board(comm->rank_);
  TR_RETURN_IF_ERROR(comm->introduce(settings.communicator));
  TR_ASSIGN_OR_RETURN(comm->hosts_, hosts_of(*comm->transport_, comm->size_, config));
  for (const AlgoChoice& a : config.algos) {
    TR_RETURN_IF_ERROR(
        comm->set_algorithm(collective_name(a.collective), a.algorithm).with_context("TR_ALGO"));
  }
  std::vector<Board*> boards;
  for (int r = 0; r < comm->size_; ++r) boards.push_back(&comm->transport_->board(r));
  comm->placement_.emplace(std::move(boards), comm->rank_);
  comm->engine_ = std::make_shared<Engine>(*comm, spin_for(*comm->placement_, config),
                                           comm->transport_->pump());
  TR_RETURN_IF_ERROR(comm->connect_devices(rendezvous));
  comm->looks_at_pointers_ = config.cuda && (comm->device_ != nullptr || has_devices());
  comm->board_->state.store(RankState::kLive, std::memory_order_release);
  TR_LOG_INFO(comm->rank_, "communicator of %d ranks formed over %s", comm->size_,
              comm->transport_->name());
  if (config.explain && comm->rank_ == 0) std::fputs(comm->explain(), stderr);
  return comm;
}

Communicator::~Communicator() {
  if (transport_ == nullptr || forks_ != forks_of_this_process()) return;
  if (device_ != nullptr) {
    (void)device_->drain();  // kernels use windows_, which go first
    device_->set_watch(nullptr);
  }
  if (engine_ != nullptr) engine_->stop();
  // Peers may still need what this rank has posted; a failed communicator's do not.
  mark_left(failed_.load(std::memory_order_relaxed) ? kLeaveFailed
            : config_.timeout_ms > 0                ? std::chrono::milliseconds(config_.timeout_ms)
                                                    : kLeaveAtLast);
  forget();
}

void Communicator::mark_left(std::chrono::milliseconds limit) {
  // Peers that still read this rank's messages have its memory mapped; they only learn that it
  // left.
  if (board_->state.load(std::memory_order_relaxed) <= RankState::kLive) {
    board_->state.store(RankState::kFinalized, std::memory_order_release);
  }
  board_->left.store(1, std::memory_order_release);  // pairs with has_gone
  transport_->leave(limit);
}

Status Communicator::check_process() const {
  if (forks_ == forks_of_this_process()) return {};
  return invalid_usage(
      "this process was forked after the communicator was made; only the parent may use it");
}

void Communicator::Guard::leave() {
  if (comm_ != nullptr) comm_->entry_->store(false, std::memory_order_release);  // pairs with enter
  comm_ = nullptr;
}

Status Communicator::Guard::enter(Communicator& comm) {
  TR_RETURN_IF_ERROR(comm.check_process());
  if (comm.entry_->exchange(true, std::memory_order_acquire)) {  // pairs with leave
    return invalid_usage(
        "the communicator is in use by another thread; use it from one thread at a time");
  }
  comm_ = &comm;
  return {};
}

Status Communicator::async_error() const {
  // Pairs with on_failure and abort.
  if (!failed_.load(std::memory_order_acquire)) {
    return device_ != nullptr ? device_->check() : Status{};
  }
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

ChoiceInput Communicator::choice_input(const Request& r) const {
  ChoiceInput in;
  in.collective = r.call.collective;
  in.size = size_;
  in.hosts = &*hosts_;
  in.bytes = r.choice_bytes;
  in.uneven = r.uneven;
  in.commutative = r.commutative;
  in.ordered = config_.ordered && r.call.op != RedOp::kNone;
  in.in_place = r.in_place;
  in.windows = !local_windows_.empty() && in_windows(r);
  in.per_rank_factor = r.call.scaled;
  in.link_bytes = transport_->link_data_bytes(LinkId::Kind::kPair);
  in.cast_bytes = transport_->link_data_bytes(LinkId::Kind::kCast);
  in.forced_slice_bytes = static_cast<std::size_t>(config_.slice_bytes);
  const std::string& forced = forced_[static_cast<int>(r.call.collective)];
  in.forced = forced.empty() ? nullptr : forced.c_str();
  in.tuning = tuning_ ? &*tuning_ : nullptr;
  return in;
}

Result<Choice> Communicator::choose_for(const Request& r) const { return choose(choice_input(r)); }

Result<const Plan*> Communicator::plan_for(const Request& r, const Choice& choice) {
  Recent& recent = recent_[static_cast<int>(r.call.collective)];
  if (recent.algorithm == choice.algorithm && recent.root == r.call.root) return recent.plan;
  std::unique_ptr<Plan>& plan = plans_[{choice.algorithm, r.call.root}];
  if (plan == nullptr) {
    TR_ASSIGN_OR_RETURN(
        plan, Plan::build(algos::record(*choice.algorithm, rank_, size_, r.call.root, &*hosts_),
                          choice.algorithm, *transport_));
  }
  recent = {choice.algorithm, r.call.root, plan.get()};
  return plan.get();
}

Status Communicator::prepare(Request& r, Operation& op) {
  Geometry geometry;
  const Plan* plan = nullptr;
  const std::size_t elem_bytes = type_bytes(r.call.type);
  const bool sendrecv = r.call.collective == Collective::kSendRecv;
  if (sendrecv) {
    TR_ASSIGN_OR_RETURN(plan, sendrecv_plan(r.call.root, r.call.is_send));
    geometry.slice_elems = kSendRecvSlice / elem_bytes;
    geometry.slot_bytes = kSendRecvSlice;
    const Hosts hosts = hosts_->view();
    geometry.stream_slots = r.call.count * elem_bytes >= kSendRecvSlice &&
                            hosts.host_of(r.call.root) == hosts.host_of(rank_);
  } else {
    TR_ASSIGN_OR_RETURN(const Choice choice, choose_for(r));
    TR_ASSIGN_OR_RETURN(plan, plan_for(r, choice));
    geometry.slice_elems = choice.slice_bytes / elem_bytes;
    geometry.slot_bytes = choice.slice_bytes;
    geometry.slices_per_round = choice.slices_per_round;
    geometry.stream_slots = choice.stream_slots;
    geometry.stream_out = choice.stream_out;
    if (r.cut) {
      r.call.in_part = r.call.out_part =
          Partition::cut(r.call.count, algos::chunk_count(*choice.algorithm, size_, &*hosts_),
                         kSlotAlign / elem_bytes);
    }
    if (choice.algorithm->windows) {
      TR_RETURN_IF_ERROR(find_windows(r));
    } else if (fifo_slots(transport_->link_data_bytes(LinkId::Kind::kPair), choice.slice_bytes) <
               static_cast<std::uint64_t>(algos::enough_slots(
                   *choice.algorithm, static_cast<int>(choice.slices_per_round), &*hosts_))) {
      return internal_error("a link has too few slots for " +
                            std::to_string(choice.slices_per_round) + " slices a round");
    }
  }
  r.call.uneven = r.uneven;
  CallKind call_kind = kind_of(r.call);
  if (plan->algorithm() != nullptr) call_kind.algorithm = number_of(*plan->algorithm());
  const std::uint64_t kind = pack(call_kind);
  const bool windows = plan->algorithm() != nullptr && plan->algorithm()->windows;
  op.call = std::move(r.call);
  op.moves = &board_->moves;
  op.deadline = call_deadline();
  if (sendrecv) {
    if (flight_ != nullptr) op.flight = flight_->begin(kNoOperation, kind, op.call.count);
    op.start(*plan, geometry, sendrecv_signature(op.call), nullptr);
    return {};
  }
  op.sequence = sequence_;
  const std::uint64_t signature = post_call(kind, op.call.count);
  op.flight = last_flight_;
  op.start(*plan, geometry, signature, windows ? &windows_ : nullptr);
  return {};
}

Status Communicator::prepare_scratch(Request& r) {
  r.call.uneven = r.uneven;
  const Shape shape{pack(kind_of(r.call)), r.call.count, r.in_place, r.commutative};
  if (!scratch_reusable_ || shape != scratch_shape_) {
    TR_RETURN_IF_ERROR(prepare(r, scratch_));
    scratch_shape_ = shape;
    scratch_range_ = range_name(r, algorithm_of(scratch_), nullptr);
    CallKind kind = kind_of(scratch_.call);
    if (const algos::Algorithm* a = scratch_.plan().algorithm()) kind.algorithm = number_of(*a);
    scratch_kind_ = pack(kind);
    scratch_may_stream_ = scratch_.may_stream_slots() && !r.uneven && shape.count > 0;
    // v-variants have more to a shape than fits here, and windows are found by address.
    scratch_reusable_ =
        !r.uneven && local_windows_.empty() && r.call.collective != Collective::kSendRecv;
    return {};
  }
  scratch_.call.factor = r.call.factor;
  if (r.call.user != scratch_.call.user) scratch_.call.user = std::move(r.call.user);
  rewind_scratch(r.call.in, r.call.out);
  return {};
}

void Communicator::rewind_scratch(const std::byte* in, std::byte* out) {
  scratch_.call.in = in;
  scratch_.call.out = out;
  scratch_.sequence = sequence_;
  scratch_.rewind(post_call(scratch_kind_, scratch_shape_.count));
  scratch_.flight = last_flight_;
}

Status Communicator::run_again(const void* in, void* out) {
  rewind_scratch(static_cast<const std::byte*>(in), static_cast<std::byte*>(out));
  return run_scratch();
}

Status Communicator::run_scratch() {
  const Range range(range_owner_, scratch_range_);
  if (!scratch_may_stream_) return engine_->run_now(scratch_);
  const Collective collective = scratch_.call.collective;
  const std::uint64_t bytes = scratch_.call.count * type_bytes(scratch_.call.type);
  scratch_.set_stream_slots(stream_trial_.begin(collective, bytes));
  const auto start = std::chrono::steady_clock::now();
  const Status status = engine_->run_now(scratch_);
  stream_trial_.report(collective, bytes, std::chrono::steady_clock::now() - start);
  return status;
}

// Puts the call on the board and counts it. Readers compare an entry's sequence before and after
// (report.cpp), so a torn entry is never believed.
std::uint64_t Communicator::post_call(std::uint64_t kind, std::uint64_t count,
                                      std::uint64_t place) {
  // Counts of a v-variant differ between ranks.
  history_ = call_signature(kind, unpack(kind).uneven ? 0 : count, history_);
  BoardOp& entry = board_->ops[sequence_ % kBoardOps];
  entry.sequence.store(0, std::memory_order_relaxed);
  entry.what.store(kind, std::memory_order_release);
  entry.count.store(count, std::memory_order_release);
  entry.place.store(place, std::memory_order_release);
  entry.history.store(history_, std::memory_order_release);
  entry.sequence.store(++sequence_, std::memory_order_release);  // pairs with posted()
  board_->issued.store(sequence_, std::memory_order_release);
  if (flight_ != nullptr) last_flight_ = flight_->begin(sequence_ - 1, kind, count);
  return history_;
}

Result<const Plan*> Communicator::sendrecv_plan(int peer, bool is_send) {
  std::unique_ptr<Plan>& plan = sendrecv_plans_[{peer, is_send}];
  if (plan == nullptr) {
    algos::TracePrims prims(rank_, size_, peer);
    is_send ? algos::point_to_point::send(prims) : algos::point_to_point::recv(prims);
    algos::Schedule s = std::move(prims).take();
    for (algos::Operand& o : s.operands) {
      if (o.space == Space::kLink) o.link.kind = LinkId::Kind::kSendRecv;
    }
    TR_ASSIGN_OR_RETURN(plan, Plan::build(std::move(s), nullptr, *transport_));
  }
  return plan.get();
}

Status Communicator::launch(Request& request, Stream* stream) {
  TR_ASSIGN_OR_RETURN(const bool on_device, is_on_device(request, stream));
  if (on_device) return launch_on_device(request, stream);
  if (stream == nullptr && engine_->idle()) {
    TR_RETURN_IF_ERROR(check_usable());
    TR_RETURN_IF_ERROR(prepare_scratch(request));
    return run_scratch();
  }
  Range range;
  TR_ASSIGN_OR_RETURN(const std::shared_ptr<Ticket> ticket, enqueue(request, stream, range));
  return stream == nullptr ? engine_->wait(*ticket) : Status{};
}

Result<std::shared_ptr<Ticket>> Communicator::enqueue(Request& request, Stream* stream,
                                                      Range& range) {
  TR_RETURN_IF_ERROR(check_usable());
  if (stream != nullptr) TR_RETURN_IF_ERROR(engine_->start_thread());
  auto ticket = std::make_shared<Ticket>();
  ticket->engine = engine_;
  const Footprint footprint = footprint_of(request);
  TR_RETURN_IF_ERROR(prepare(request, ticket->op));
  range.begin(range_owner_, range_name(request, algorithm_of(ticket->op), nullptr));
  if (ticket->op.may_stream_slots() && !request.uneven) {
    ticket->op.set_stream_slots(
        stream_trial_.current(ticket->op.call.collective, request.choice_bytes));
  }
  if (stream != nullptr) stream->add(ticket, footprint);
  engine_->enqueue(ticket, stream != nullptr);
  return ticket;
}

Status Communicator::finalize() {
  // What failed was reported by the operation itself; finalizing a failed communicator is no new
  // error.
  (void)engine_->drain();
  if (device_ != nullptr) (void)device_->drain();
  return check_past_calls();
}

bool Communicator::waits_in_vain(const Operation& op) {
  placement_->update();
  return op.any_missing_writer([this](int rank) { return placement_->shares_core(rank); });
}

void Communicator::abort() {
  aborts_.fetch_add(1, std::memory_order_release);  // pairs with check_interrupted
  {
    std::lock_guard lock(failure_mutex_);
    if (failure_.ok()) {
      failure_ = Status(Code::kAborted,
                        "rank " + std::to_string(rank_) + " (this rank) aborted the communicator");
    }
  }
  failed_.store(true, std::memory_order_release);   // pairs with async_error
  aborted_.store(true, std::memory_order_release);  // pairs with on_slow_wait
  board_->state.store(RankState::kAborted, std::memory_order_release);
  transport_->push_board();
  if (device_ != nullptr) device_->abort();
}

}  // namespace treering
