// Segment: a memory file (memfd) mapped into this process, once, however many ranks of the process
// use it.
//
// Ranks that are threads of one process must see a segment at one address: then ThreadSanitizer can
// tell that two of them touch the same memory without order, which it could not through two
// mappings. So there is one table per process, by (device, inode); the last owner unmaps.
//
// Segments are inherited by fork: the child sees the same memory and must not touch it (the API
// layer refuses calls there). They are not marked MADV_DONTFORK: a child that only looks, a crash
// reporter say, would die by it, and the pages cost the child nothing. Unmapping writes nothing to
// the memory, so a child that runs its parent's destructors does the parent no harm.
#pragma once

#include <compare>
#include <cstddef>
#include <memory>
#include <sys/types.h>

#include "core/status.hpp"
#include "core/unique_fd.hpp"

namespace treering {

struct SegmentKey {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const SegmentKey&) const = default;
};

// A new memory file of `bytes` bytes (whole pages), zeroed, closed on exec, sealed so that nobody
// can change its size: a mapping of it can never fault for want of file.
Result<UniqueFd> create_memory_file(std::size_t bytes);

// Asks the kernel for every page of [first, first + bytes) now, and maps it, without changing its
// content. Pages that others use are fine. The error says how much was wanted.
Status make_resident(std::byte* first, std::size_t bytes);

class Segment {
 public:
  // Maps all of `memory_file`; `bytes` is what the owner said its size is. Refuses a file of
  // another size or one that can shrink. Shares the process's mapping if there is one. Does not
  // keep the descriptor.
  static Result<std::shared_ptr<Segment>> map(int memory_file, std::size_t bytes);
  // The process's mapping, or null.
  static std::shared_ptr<Segment> find(const SegmentKey& key);

  Segment(SegmentKey key, std::byte* base, std::size_t bytes)
      : key_(key), base_(base), bytes_(bytes) {}
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  const SegmentKey& key() const { return key_; }
  std::byte* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }

 private:
  SegmentKey key_;
  std::byte* base_;
  std::size_t bytes_;
};

}  // namespace treering
