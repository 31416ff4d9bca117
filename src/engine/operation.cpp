#include "engine/operation.hpp"

#include <algorithm>

namespace treering {
namespace {

// Below this a streaming store costs more than it saves.
constexpr std::size_t kMinStreamBytes = 4096;

// The rank that keeps the link full.
int slowest_reader(const FifoTx& tx, const LinkId& link) {
  if (link.dst >= 0) return link.dst;
  int slowest = -1;
  std::uint64_t lowest = ~std::uint64_t{0};
  for (std::int32_t i = tx.first_reader; i < tx.end_reader; ++i) {
    if (i == tx.skip_reader) continue;
    const std::uint64_t head = tx.heads[i].head.load(std::memory_order_acquire);  // [F6]
    if (head < lowest) {
      lowest = head;
      slowest = i;
    }
  }
  return slowest;
}

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0); }

bool is_token_step(const PlanStep& step) {
  return step.verb == Verb::kPublish || step.verb == Verb::kAwait;
}

// Both ends must agree on the operation and on the length of every message.
std::uint64_t message_signature(std::uint64_t operation, std::size_t bytes) {
  return operation + bytes * 0x9E3779B97F4A7C15ull;
}

}  // namespace

void Operation::start(const Plan& plan, const Geometry& geometry, std::uint64_t signature,
                      const std::vector<WindowMap>* windows) {
  plan_ = &plan;
  windows_ = windows;
  geometry_ = geometry;
  failure_ = {};
  inputs_.resize(std::max<std::size_t>(inputs_.size(), plan.max_operands()));
  outputs_.resize(std::max<std::size_t>(outputs_.size(), plan.max_operands()));
  if (windows != nullptr) tokens_.assign(plan.schedule().size, WindowToken{});
  lanes_.resize(plan.lanes().size());
  std::uint64_t slices = 0;
  for (const PlanStep& step : plan.steps()) slices = std::max(slices, slices_of(step));
  rounds_ = ceil_div(slices, geometry.slices_per_round);
  rewind(signature);
}

void Operation::rewind(std::uint64_t signature) {
  signature_ = signature;
  lanes_open_ = 0;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const PlanLane& range = plan_->lanes()[i];
    lanes_[i] = Lane{};
    lanes_[i].open = rounds_ > 0;
    lanes_[i].older = {0, range.begin, 0};
    lanes_[i].younger = {1, range.begin, 0};
    lanes_[i].has_younger = rounds_ > 1;
    lanes_open_ += lanes_[i].open;
  }
}

std::uint64_t Operation::step_elems(const PlanStep& step) const {
  if (is_token_step(step)) return 1;
  if (step.sized_by < 0) {
    const int chunk = plan_->operands(step)[0].chunk;
    return call.wire_is_in ? call.in_part.elems(chunk) : call.out_part.elems(chunk);
  }
  const PlanOperand& o = plan_->operands(step)[step.sized_by];
  const bool reads = o.space == Space::kIn || o.space == Space::kPeerIn;
  return reads ? call.in_part.elems(o.chunk) : call.out_part.elems(o.chunk);
}

std::uint64_t Operation::slices_of(const PlanStep& step) const {
  return ceil_div(step_elems(step), is_token_step(step) ? 1 : geometry_.slice_elems);
}

std::uint64_t Operation::messages_on(int link) const {
  return plan_->messages(link, [this](const PlanStep& step) { return slices_of(step); });
}

bool Operation::progress() {
  bool moved = false;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].open) moved |= advance_lane(plan_->lanes()[i], lanes_[i]);
  }
  return moved;
}

bool Operation::advance_lane(const PlanLane& range, Lane& lane) {
  bool moved = false;
  for (;;) {
    moved |= run(lane.older, range.end, nullptr);
    if (!failure_.ok()) return true;
    if (lane.older.step < range.end) break;
    if (!lane.has_younger) {
      lane.open = false;
      --lanes_open_;
      return true;
    }
    lane.older = lane.younger;
    lane.younger = {lane.older.round + 1, range.begin, 0};
    lane.has_younger = lane.younger.round < rounds_;
  }
  if (lane.has_younger) moved |= run(lane.younger, range.end, &lane.older);
  return moved;
}

bool Operation::run(Cursor& at, std::int32_t limit, const Cursor* older) {
  bool moved = false;
  while (at.step < limit) {
    const PlanStep& step = plan_->steps()[at.step];
    if (older != nullptr && older->step <= step.gate) break;
    const std::uint64_t slice = at.round * geometry_.slices_per_round + at.slice;
    if (!run_slice(step, slice)) break;
    moved = true;
    // One thread at a time drives a communicator's operations: no read-modify-write is needed.
    if (moves != nullptr)
      moves->store(moves->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (++at.slice == geometry_.slices_per_round) {
      at.slice = 0;
      ++at.step;
    }
  }
  return moved;
}

bool Operation::ready(const PlanStep& step, std::size_t bytes) const {
  const PlanOperand* o = plan_->operands(step);
  for (int i = 0; i < step.inputs; ++i) {
    if (o[i].space != Space::kLink) continue;
    if (!is_head && o[i].rx->next < first_message_[o[i].link]) return false;
    if (!rx_ready(*o[i].rx)) return false;
  }
  for (int i = step.inputs; i < step.inputs + step.outputs; ++i) {
    if (o[i].space != Space::kLink) continue;
    if (!is_head && o[i].tx->next < first_message_[o[i].link]) return false;
    if (!tx_ready(*o[i].tx, bytes, geometry_.slot_bytes)) return false;
  }
  return true;
}

// Handles one slice of one step if all its messages and slots are there. An empty slice is no
// message.
bool Operation::run_slice(const PlanStep& step, std::uint64_t slice) {
  const bool token = is_token_step(step);
  const std::uint64_t first = token ? 0 : slice * geometry_.slice_elems;
  const std::uint64_t total = step_elems(step);
  if (first >= total || (token && slice > 0)) return true;
  const std::size_t elem_bytes = token ? sizeof(WindowToken) : type_bytes(call.type);
  const std::uint64_t elems = token ? 1 : std::min(total - first, geometry_.slice_elems);
  const std::size_t bytes = elems * elem_bytes;
  if (!ready(step, bytes)) return false;

  const PlanOperand* in = plan_->operands(step);
  const PlanOperand* out = in + step.inputs;
  const std::uint64_t signature = message_signature(signature_, bytes);
  ReduceArgs args;
  for (int i = 0; i < step.inputs; ++i) {
    if (in[i].space == Space::kLink && rx_line(*in[i].rx).signature != signature) {
      fail_signature(in[i]);
      return false;
    }
    inputs_[i] = input_address(in[i], first, bytes);
    if (call.scaled && in[i].space == Space::kIn) args.scaled_input = i;
  }
  const bool stream = bytes >= kMinStreamBytes;
  for (int i = 0; i < step.outputs; ++i) {
    outputs_[i] = output_address(out[i], first, bytes);
    const bool wanted =
        out[i].space == Space::kLink ? geometry_.stream_slots : geometry_.stream_out;
    if (stream && wanted && i < 64) args.streaming_outputs |= 1ull << i;
  }
  const bool moves_only =
      step.inputs == 1 && args.scaled_input < 0 && !(step.last && call.divisor > 1);
  if (!(moves_only && step.outputs == 1 && inputs_[0] == outputs_[0])) {
    args.inputs = inputs_.data();
    args.num_inputs = step.inputs;
    args.outputs = outputs_.data();
    args.num_outputs = step.outputs;
    args.elems = moves_only ? bytes : elems;
    args.type = moves_only ? Type::kUint8 : call.type;
    args.op = moves_only ? RedOp::kNone : call.op;
    args.scale_in = call.factor;
    args.divisor = step.last ? call.divisor : 1;
    args.user = call.user.get();
    reduce(args);
    if (args.op == RedOp::kUser) {
      failure_ = take_operator_failure();
      if (!failure_.ok()) return false;  // and nobody gets what it left
    }
  }
  for (int i = 0; i < step.outputs; ++i) {
    if (out[i].space != Space::kLink) continue;
    tx_post(*out[i].tx, signature);
    out[i].tx->moved_bytes += bytes;
  }
  for (int i = 0; i < step.inputs; ++i) {
    if (in[i].space != Space::kLink || in[i].peek) continue;
    rx_release(*in[i].rx);
    in[i].rx->moved_bytes += bytes;
  }
  return true;
}

std::byte* Operation::peer_out(const PlanOperand& o, std::uint64_t first_elem) const {
  const WindowToken& t = tokens_[o.peer];
  return (*windows_)[t.out_window].base[o.peer] + t.out_offset_bytes +
         (call.out_part.offset(o.chunk) + first_elem) * type_bytes(call.type);
}

const void* Operation::input_address(const PlanOperand& o, std::uint64_t first_elem,
                                     std::size_t bytes) {
  const std::size_t elem_bytes = type_bytes(call.type);
  switch (o.space) {
    case Space::kLink:
      return rx_payload(*o.rx, bytes, geometry_.slot_bytes);
    case Space::kIn:
      return call.in + (call.in_part.offset(o.chunk) + first_elem) * elem_bytes;
    case Space::kOut:
      return call.out + (call.out_part.offset(o.chunk) + first_elem) * elem_bytes;
    case Space::kToken:
      return &call.token;
    case Space::kPeerIn: {
      const WindowToken& t = tokens_[o.peer];
      return (*windows_)[t.in_window].base[o.peer] + t.in_offset_bytes +
             (call.in_part.offset(o.chunk) + first_elem) * elem_bytes;
    }
    case Space::kPeerOut:
      return peer_out(o, first_elem);
    default:
      return nullptr;
  }
}

void* Operation::output_address(const PlanOperand& o, std::uint64_t first_elem, std::size_t bytes) {
  const std::size_t elem_bytes = type_bytes(call.type);
  switch (o.space) {
    case Space::kLink:
      return tx_payload(*o.tx, bytes);
    case Space::kOut:
      return call.out + (call.out_part.offset(o.chunk) + first_elem) * elem_bytes;
    case Space::kToken:
      return &tokens_[o.peer];
    case Space::kPeerOut:
      return peer_out(o, first_elem);
    default:
      return nullptr;
  }
}

void Operation::fail_signature(const PlanOperand& o) {
  const LinkId& id = plan_->links()[o.link].id;
  failure_ = Status(Code::kMismatch, "rank " + std::to_string(id.src) + " sent message " +
                                         std::to_string(o.rx->next) + " on link " + to_string(id) +
                                         " for a different operation, count or type");
}

bool Operation::where(Wait* wait) const {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].open) continue;
    const Cursor& at = lanes_[i].older;
    const PlanStep& step = plan_->steps()[at.step];
    const PlanOperand* o = plan_->operands(step);
    for (int j = 0; j < step.inputs + step.outputs; ++j) {
      if (o[j].space != Space::kLink) continue;
      const bool output = j >= step.inputs;
      if (!output && rx_ready(*o[j].rx)) continue;
      if (output && o[j].tx->next - o[j].tx->released < 1) continue;
      wait->link = plan_->links()[o[j].link].id;
      wait->number = output ? o[j].tx->next : o[j].rx->next;
      wait->for_credit = output;
      wait->tx = output ? o[j].tx : nullptr;
      wait->peer = output ? slowest_reader(*o[j].tx, wait->link) : wait->link.src;
      wait->round = at.round;
      wait->slice = at.slice;
      wait->verb = step.verb;
      wait->chunk = o[j].chunk;
      return true;
    }
  }
  return false;
}

}  // namespace treering
