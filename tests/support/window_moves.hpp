// Every operation that only moves data, on two buffers of each rank, against what a rank can tell
// by itself. The buffers are memory that the host can read: the emulator's device memory is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace treering::test {

class WindowMoves {
 public:
  // Both buffers have needed(count, size) bytes.
  WindowMoves(tr_comm_t comm, int rank, int size, std::uint8_t* in, std::uint8_t* out)
      : comm_(comm), rank_(rank), size_(static_cast<std::uint64_t>(size)), in_(in), out_(out) {}
  // sync: until what was called on `stream` is done.
  void use_stream(tr_stream_t stream, std::function<tr_result_t()> sync) {
    stream_ = stream;
    sync_ = std::move(sync);
  }
  // Copy engines serve no scatters, nor gathers in place: there the root's buffer lies elsewhere.
  void leave_out_what_copy_engines_do_not() { by_copy_engines_ = true; }

  static std::size_t needed(std::uint64_t count, int size) {
    return count * static_cast<std::uint64_t>(size) + kGuard;
  }
  // All of them with parts of `count` bytes; what is wrong, or nothing.
  std::string run(std::uint64_t count) {
    count_ = count;
    for (const bool in_place : {false, true}) {
      in_place_ = in_place;
      for (int root = 0; root < static_cast<int>(size_); ++root) {
        for (auto op : {&WindowMoves::broadcast, &WindowMoves::gather, &WindowMoves::scatter}) {
          if (std::string wrong = (this->*op)(root); !wrong.empty()) return where(wrong, root);
        }
      }
      if (std::string wrong = all_gather(); !wrong.empty()) return where(wrong, 0);
      if (in_place) continue;
      if (std::string wrong = all_to_all(); !wrong.empty()) return where(wrong, 0);
    }
    return {};
  }

 private:
  using Bytes = std::vector<std::uint8_t>;
  static constexpr std::size_t kGuard = 64;

  std::string where(const std::string& wrong, int root) const {
    return wrong + ", count " + std::to_string(count_) + ", root " + std::to_string(root) +
           (in_place_ ? ", in place" : "");
  }
  // Byte i of what rank r gives in this turn.
  std::uint8_t given(std::uint64_t r, std::uint64_t i) const {
    return static_cast<std::uint8_t>(r * 41 + i * 11 + i / 251 + turn_ * 7);
  }
  Bytes part(std::uint64_t r, std::uint64_t first, std::uint64_t count) const {
    Bytes bytes(count);
    for (std::uint64_t i = 0; i < count; ++i) bytes[i] = given(r, first + i);
    return bytes;
  }
  // Fills both buffers, puts `gives` at src, calls, and compares `dst` with `wants` and the rest
  // with what it was.
  std::string check(const char* name, const Bytes& gives, std::uint8_t* src, const Bytes& wants,
                    std::uint8_t* dst, const std::function<tr_result_t()>& call) {
    const std::size_t bytes = needed(count_, static_cast<int>(size_));
    std::memset(in_, 0xA5, bytes);
    std::memset(out_, 0x5A, bytes);
    if (!gives.empty()) std::memcpy(src, gives.data(), gives.size());
    Bytes in_after(in_, in_ + bytes), out_after(out_, out_ + bytes);
    if (!wants.empty()) std::memcpy(&out_after[dst - out_], wants.data(), wants.size());
    tr_result_t result = call();
    if (result == TR_SUCCESS && sync_) result = sync_();
    if (result != TR_SUCCESS) return failure(name, result);
    if (std::memcmp(in_, in_after.data(), bytes) != 0) return std::string(name) + " changed in";
    for (std::size_t i = 0; i < bytes; ++i) {
      if (out_[i] != out_after[i]) return std::string(name) + ": byte " + std::to_string(i);
    }
    ++turn_;
    return {};
  }

  std::string broadcast(int root) {
    const Bytes vector = part(static_cast<std::uint64_t>(root), 0, count_);
    std::uint8_t* const src = in_place_ ? out_ : in_;
    return check("tr_broadcast", rank_ == root ? vector : Bytes(), src, vector, out_, [&] {
      return tr_broadcast(rank_ == root ? src : nullptr, out_, count_, TR_UINT8, root, comm_,
                          stream_);
    });
  }
  std::string gather(int root) {
    if (in_place_ && by_copy_engines_) return {};
    Bytes all;
    for (std::uint64_t r = 0; r < size_ && rank_ == root; ++r) {
      const Bytes theirs = part(r, 0, count_);
      all.insert(all.end(), theirs.begin(), theirs.end());
    }
    std::uint8_t* const src = in_place_ && rank_ == root ? out_ + mine() : in_;
    return check("tr_gather", part(rank(), 0, count_), src, all, out_, [&] {
      return tr_gather(src, rank_ == root ? out_ : nullptr, count_, TR_UINT8, root, comm_, stream_);
    });
  }
  std::string scatter(int root) {
    if (by_copy_engines_) return {};
    const auto from = static_cast<std::uint64_t>(root);
    const Bytes wants = part(from, mine(), count_);
    if (in_place_ && rank_ == root) {
      const Bytes all = part(from, 0, count_ * size_);
      return check("tr_scatter", all, out_, all, out_, [&] {
        return tr_scatter(out_, out_ + mine(), count_, TR_UINT8, root, comm_, stream_);
      });
    }
    const Bytes gives = rank_ == root ? part(from, 0, count_ * size_) : Bytes();
    return check("tr_scatter", gives, in_, wants, out_, [&] {
      return tr_scatter(rank_ == root ? in_ : nullptr, out_, count_, TR_UINT8, root, comm_,
                        stream_);
    });
  }
  std::string all_gather() {
    Bytes all;
    for (std::uint64_t r = 0; r < size_; ++r) {
      const Bytes theirs = part(r, 0, count_);
      all.insert(all.end(), theirs.begin(), theirs.end());
    }
    std::uint8_t* const src = in_place_ ? out_ + mine() : in_;
    return check("tr_all_gather", part(rank(), 0, count_), src, all, out_,
                 [&] { return tr_all_gather(src, out_, count_, TR_UINT8, comm_, stream_); });
  }
  std::string all_to_all() {
    Bytes wants;
    for (std::uint64_t r = 0; r < size_; ++r) {
      const Bytes theirs = part(r, mine(), count_);
      wants.insert(wants.end(), theirs.begin(), theirs.end());
    }
    return check("tr_all_to_all", part(rank(), 0, count_ * size_), in_, wants, out_,
                 [&] { return tr_all_to_all(in_, out_, count_, TR_UINT8, comm_, stream_); });
  }

  std::uint64_t rank() const { return static_cast<std::uint64_t>(rank_); }
  std::uint64_t mine() const { return rank() * count_; }

  tr_comm_t comm_;
  int rank_;
  std::uint64_t size_;
  std::uint8_t* in_;
  std::uint8_t* out_;
  tr_stream_t stream_ = nullptr;
  std::function<tr_result_t()> sync_;
  bool by_copy_engines_ = false;
  bool in_place_ = false;
  std::uint64_t count_ = 0;
  std::uint64_t turn_ = 0;
};

}  // namespace treering::test
