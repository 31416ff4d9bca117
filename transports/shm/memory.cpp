#include "transports/memory.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>

#include "transports/segment.hpp"
#include "transports/shm/block.hpp"
#include "transports/shm/layout.hpp"

namespace treering {
namespace shm {
namespace {

struct Block {
  UniqueFd memory_file;
  std::shared_ptr<Segment> segment;
  int holds = 0;
};
struct Blocks {
  std::mutex mutex;
  std::map<std::uintptr_t, Block> by_address;
};
// Never destroyed: blocks live until they are freed or the process ends.
Blocks& blocks() {
  static Blocks* const kBlocks = new Blocks;
  return *kBlocks;
}

std::string text_of(const void* ptr) {
  std::ostringstream text;
  text << ptr;
  return text.str();
}

}  // namespace

Result<BlockHold> BlockHold::of(void* ptr, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(ptr);
  const std::lock_guard lock(blocks().mutex);
  auto it = blocks().by_address.upper_bound(address);
  if (it != blocks().by_address.begin()) {
    --it;
    Block& block = it->second;
    const std::size_t offset = address - it->first;
    if (offset < block.segment->bytes() && bytes <= block.segment->bytes() - offset) {
      ++block.holds;
      return BlockHold(block.memory_file.get(), block.segment, offset);
    }
  }
  return invalid_argument("[" + text_of(ptr) + ", +" + std::to_string(bytes) +
                          ") does not lie in one block of tr_mem_alloc: only such memory, or that "
                          "of cudaMalloc, can be registered");
}

BlockHold::~BlockHold() {
  if (!segment_) return;
  const std::lock_guard lock(blocks().mutex);
  --blocks().by_address.at(reinterpret_cast<std::uintptr_t>(segment_->base())).holds;
}

}  // namespace shm

Result<void*> mem_alloc(std::size_t bytes) {
  using namespace shm;
  if (bytes == 0) return invalid_argument("an allocation of 0 bytes");
  const std::size_t whole_bytes = round_up(bytes, kPageBytes);
  // The pages are made resident below, and the kernel would rather kill a process than refuse it
  // pages that can never be there.
  const std::size_t machine_bytes = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
                                    static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (whole_bytes < bytes || whole_bytes > machine_bytes)
    return invalid_argument("an allocation of " + std::to_string(bytes) +
                            " bytes: this machine has " + std::to_string(machine_bytes));
  TR_ASSIGN_OR_RETURN(UniqueFd memory_file, create_memory_file(whole_bytes));
  TR_ASSIGN_OR_RETURN(std::shared_ptr<Segment> segment,
                      Segment::map(memory_file.get(), whole_bytes));
  std::byte* const base = segment->base();
  TR_RETURN_IF_ERROR(make_resident(base, whole_bytes));
  const std::lock_guard lock(blocks().mutex);
  blocks().by_address.emplace(reinterpret_cast<std::uintptr_t>(base),
                              Block{std::move(memory_file), std::move(segment)});
  return static_cast<void*>(base);
}

Status mem_free(void* ptr) {
  using namespace shm;
  if (ptr == nullptr) return {};
  Block freed;  // unmapped after the lock is released
  const std::lock_guard lock(blocks().mutex);
  const auto it = blocks().by_address.find(reinterpret_cast<std::uintptr_t>(ptr));
  if (it == blocks().by_address.end())
    return invalid_argument(text_of(ptr) + " is not a block of tr_mem_alloc, or was freed before");
  if (it->second.holds > 0)
    return invalid_usage("the block at " + text_of(ptr) +
                         " is still registered as a window: deregister it first");
  freed = std::move(it->second);
  blocks().by_address.erase(it);
  return {};
}

}  // namespace treering
