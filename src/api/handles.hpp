// Handles: what the C API gives out instead of pointers.
//
// A handle is a number (slot and generation) in a pointer's clothes. A destroyed, foreign or
// garbage handle is recognised, never dereferenced.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace treering::api {

// Thread-safe. Lookup costs a mutex and a reference count; for communicators, whose calls are hot,
// there is CommTable (comm_table.hpp).
template <class T>
class HandleTable {
 public:
  void* add(std::shared_ptr<T> object) {
    std::lock_guard lock(mutex_);
    std::size_t slot = 0;
    while (slot < slots_.size() && slots_[slot].object != nullptr) ++slot;
    if (slot == slots_.size()) slots_.emplace_back();
    slots_[slot].object = std::move(object);
    return encode(slot, ++slots_[slot].generation);
  }
  std::shared_ptr<T> find(const void* handle) {
    std::lock_guard lock(mutex_);
    Slot* slot = locate(handle);
    return slot == nullptr ? nullptr : slot->object;
  }
  std::shared_ptr<T> remove(const void* handle) {
    std::lock_guard lock(mutex_);
    Slot* slot = locate(handle);
    return slot == nullptr ? nullptr : std::exchange(slot->object, nullptr);
  }

 private:
  struct Slot {
    std::shared_ptr<T> object;
    std::uint32_t generation = 0;
  };
  // Odd, so that it is no valid pointer: whoever dereferences it by mistake fails at once.
  static void* encode(std::size_t slot, std::uint32_t generation) {
    return reinterpret_cast<void*>((static_cast<std::uintptr_t>(generation) << 32 | slot) << 1 | 1);
  }
  Slot* locate(const void* handle) {
    const auto value = reinterpret_cast<std::uintptr_t>(handle);
    const std::size_t slot = value >> 1 & 0xFFFFFFFF;
    if ((value & 1) == 0 || slot >= slots_.size()) return nullptr;
    const bool current =
        slots_[slot].object != nullptr && encode(slot, slots_[slot].generation) == handle;
    return current ? &slots_[slot] : nullptr;
  }

  std::mutex mutex_;
  std::vector<Slot> slots_;
};

}  // namespace treering::api
