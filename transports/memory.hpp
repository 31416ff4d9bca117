// Memory that peers can map: what tr_mem_alloc gives out and Transport::map_windows accepts.
//
// A block is a memory file of its own (memfd), so that it can be handed to other processes: it
// costs one file descriptor until it is freed, and its size is rounded up to whole pages.
//
// Thread-safe. One table for the process; a block belongs to no communicator.
#pragma once

#include <cstddef>

#include "core/status.hpp"

namespace treering {

// Zeroed, page-aligned, resident (no page fault on later use). Errors: bytes == 0; no memory, no
// descriptor.
Result<void*> mem_alloc(std::size_t bytes);

// Null is a no-op. Errors, and nothing happened: a pointer that mem_alloc did not give out or that
// was freed before; a block that is still part of a window on this rank.
Status mem_free(void* ptr);

}  // namespace treering
