// Registered memory, of the host or of GPUs: what tr_comm_register keeps, and which buffers lie in
// it. The windows of both are numbered together: an address says which one it is in.
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"

namespace treering {

Result<int> Communicator::register_window(void* ptr, std::size_t bytes) {
  const Range range(range_owner_, {.operation = "register", .bytes = bytes});
  std::vector<int> everyone(size_);
  for (int r = 0; r < size_; ++r) everyone[r] = r;
  SubsetRendezvous all(*this, std::move(everyone), "tr_comm_register");
  TR_ASSIGN_OR_RETURN(const bool on_device, register_on_device(ptr, all));
  TR_ASSIGN_OR_RETURN(WindowMap map, on_device ? device_->links().map_windows(ptr, bytes, all)
                                               : transport_->map_windows(ptr, bytes, all));
  windows_.push_back(std::move(map));
  scratch_reusable_ = false;
  local_windows_.push_back({static_cast<const std::byte*>(ptr), bytes});
  return static_cast<int>(windows_.size()) - 1;
}

// All ranks bring memory of GPUs, or all bring the host's.
Result<bool> Communicator::register_on_device(const void* ptr, Rendezvous& all) const {
  const bool mine = is_device_memory(ptr);
  TR_ASSIGN_OR_RETURN(const std::vector<std::string> kinds,
                      all.all_gather(mine ? "device memory" : "memory of no device"));
  for (std::size_t r = 1; r < kinds.size(); ++r) {
    if (kinds[r] == kinds[0]) continue;
    return invalid_argument("rank 0 registers " + kinds[0] + " and rank " + std::to_string(r) +
                            " " + kinds[r] + "; all ranks must bring the same kind");
  }
  if (mine && device_ == nullptr) {
    return unsupported(
        "device memory cannot be registered: this communicator has no GPU links; TR_LOG=info says "
        "why");
  }
  return mine;
}

Status Communicator::deregister_window(int index) {
  if (index < 0 || index >= static_cast<int>(local_windows_.size()) ||
      local_windows_[index].ptr == nullptr) {
    return invalid_argument("the window is not registered with this communicator");
  }
  if (device_ != nullptr) (void)device_->drain();  // no kernel of this rank uses the window now
  // Indices are never used again: all ranks number their windows alike.
  local_windows_[index] = {};
  windows_[index] = {};
  return {};
}

namespace {

// Index of a window that holds [ptr, ptr+bytes), -1 if none.
template <class Windows>
int window_of(const Windows& windows, const std::byte* ptr, std::uint64_t bytes) {
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].ptr != nullptr && ptr >= windows[i].ptr &&
        ptr + bytes <= windows[i].ptr + windows[i].bytes) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace

bool Communicator::in_windows(const Request& r) const {
  const auto fits = [&](const std::byte* ptr, std::uint64_t bytes) {
    return bytes == 0 || window_of(local_windows_, ptr, bytes) >= 0;  // 0: not used
  };
  return fits(r.call.in, r.in_bytes) && fits(r.call.out, r.out_bytes);
}

Status Communicator::find_windows(Request& r) const {
  r.call.token = {};
  if (r.in_bytes > 0) {
    const int in = window_of(local_windows_, r.call.in, r.in_bytes);
    if (in < 0) return internal_error("a window algorithm without a window to read");
    r.call.token.in_window = static_cast<std::uint32_t>(in);
    r.call.token.in_offset_bytes = static_cast<std::uint64_t>(r.call.in - local_windows_[in].ptr);
  }
  if (r.out_bytes > 0) {
    const int out = window_of(local_windows_, r.call.out, r.out_bytes);
    if (out < 0) return internal_error("a window algorithm without a window to write");
    r.call.token.out_window = static_cast<std::uint32_t>(out);
    r.call.token.out_offset_bytes =
        static_cast<std::uint64_t>(r.call.out - local_windows_[out].ptr);
  }
  return {};
}

}  // namespace treering
