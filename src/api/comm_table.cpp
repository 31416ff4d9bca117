#include "api/comm_table.hpp"

#include <array>
#include <chrono>
#include <cstdlib>

namespace treering::api {

struct Slot {
  std::atomic<bool> entered{false};
  // Even: free; odd: in use. Changed only while entered is held.
  std::atomic<std::uint32_t> generation{0};
  std::mutex mutex;  // guards comm against share_comm
  std::shared_ptr<Communicator> comm;
};

namespace {

// Communicators alive at once in one process.
constexpr std::size_t kMaxComms = 1 << 14;
// For what is on its way to other hosts when the process exits.
constexpr auto kLeaveAtExit = std::chrono::seconds(2);

struct Table {
  std::mutex mutex;  // of add_comm
  std::array<std::atomic<Slot*>, kMaxComms> slots{};
};

// At exit, peers must learn that this rank is done, even if it never destroyed its communicators.
void leave_all();

Table& table() {
  static Table* const instance = [] {
    std::atexit(leave_all);
    return new Table;  // never destroyed: calls may come from other objects' destructors
  }();
  return *instance;
}

void leave_all() {
  for (std::atomic<Slot*>& entry : table().slots) {
    Slot* slot = entry.load(std::memory_order_acquire);
    if (slot == nullptr) break;
    std::lock_guard lock(slot->mutex);
    // A forked child's exit is not its parent's.
    if (slot->comm != nullptr && slot->comm->check_process().ok())
      slot->comm->mark_left(kLeaveAtExit);
  }
}

tr_comm_t encode(std::size_t index, std::uint32_t generation) {
  return reinterpret_cast<tr_comm_t>((static_cast<std::uintptr_t>(generation) << 32 | index) << 1 |
                                     1);
}

struct Decoded {
  Slot* slot = nullptr;
  std::uint32_t generation = 0;
};

Decoded decode(tr_comm_t handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  const std::size_t index = value >> 1 & 0xFFFFFFFF;
  if ((value & 1) == 0 || index >= kMaxComms) return {};
  return {table().slots[index].load(std::memory_order_acquire),
          static_cast<std::uint32_t>(value >> 33)};
}

Status bad_handle(tr_comm_t handle) {
  if (handle == nullptr) return invalid_argument("the communicator is NULL");
  return invalid_usage("the communicator was destroyed, or the handle is garbage");
}

}  // namespace

tr_comm_t add_comm(std::shared_ptr<Communicator> comm) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  for (std::size_t i = 0; i < kMaxComms; ++i) {
    Slot* slot = t.slots[i].load(std::memory_order_relaxed);
    if (slot == nullptr) {
      slot = new Slot;
      t.slots[i].store(slot, std::memory_order_release);  // pairs with decode
    }
    // The flag of a free slot is held as long as its last communicator is being destroyed.
    if (slot->generation.load(std::memory_order_relaxed) % 2 != 0 ||
        slot->entered.exchange(true, std::memory_order_acquire)) {
      continue;
    }
    std::lock_guard slot_lock(slot->mutex);
    comm->set_entry_flag(&slot->entered);
    slot->comm = std::move(comm);
    const std::uint32_t generation = slot->generation.load(std::memory_order_relaxed) + 1;
    slot->generation.store(generation, std::memory_order_release);
    slot->entered.store(false, std::memory_order_release);
    return encode(i, generation);
  }
  return nullptr;
}

Status CommCall::enter(tr_comm_t handle) {
  const Decoded d = decode(handle);
  if (d.slot == nullptr || d.slot->generation.load(std::memory_order_acquire) != d.generation) {
    return bad_handle(handle);
  }
  if (in_user_operator()) {
    return invalid_usage("an operator (tr_op_create) must not call the library");
  }
  if (d.slot->entered.exchange(true, std::memory_order_acquire)) {  // pairs with ~CommCall
    return invalid_usage(
        "the communicator is in use by another thread; use it from one thread at a time");
  }
  slot_ = d.slot;
  // Destroyed between the two looks?
  if (slot_->generation.load(std::memory_order_relaxed) != d.generation) return bad_handle(handle);
  comm_ = slot_->comm.get();
  return comm_->check_process();
}

CommCall::~CommCall() {
  if (slot_ != nullptr) slot_->entered.store(false, std::memory_order_release);  // pairs with enter
}

std::shared_ptr<Communicator> CommCall::take() {
  std::lock_guard lock(slot_->mutex);
  slot_->generation.fetch_add(1, std::memory_order_release);
  return std::exchange(slot_->comm, nullptr);
}

Result<std::shared_ptr<Communicator>> share_comm(tr_comm_t handle) {
  const Decoded d = decode(handle);
  if (d.slot == nullptr) return bad_handle(handle);
  std::lock_guard lock(d.slot->mutex);
  if (d.slot->generation.load(std::memory_order_relaxed) != d.generation) return bad_handle(handle);
  return d.slot->comm;
}

}  // namespace treering::api
