// The blocks of mem_alloc (transports/memory.hpp), as windows see them.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "core/status.hpp"
#include "transports/segment.hpp"

namespace treering::shm {

// A hold on the block that contains a range of memory: as long as it lives, mem_free refuses the
// block.
class BlockHold {
 public:
  // Error: [ptr, ptr + bytes) does not lie within one block.
  static Result<BlockHold> of(void* ptr, std::size_t bytes);

  BlockHold(BlockHold&&) noexcept = default;
  BlockHold& operator=(BlockHold&&) = delete;
  ~BlockHold();

  int memory_file() const { return memory_file_; }
  const std::shared_ptr<Segment>& segment() const { return segment_; }
  std::size_t offset() const { return offset_; }  // of ptr in the block

 private:
  BlockHold(int memory_file, std::shared_ptr<Segment> segment, std::size_t offset)
      : memory_file_(memory_file), segment_(std::move(segment)), offset_(offset) {}

  int memory_file_;
  std::shared_ptr<Segment> segment_;  // null once moved from
  std::size_t offset_;
};

}  // namespace treering::shm
