// Device memory: shared files mapped between guard pages, in the window of their device.
#pragma once

#include "runtime.hpp"

namespace cudasim {

struct Allocation {
  Place place;
  std::uintptr_t mapping = 0;  // with the guard pages around it
  std::size_t mapping_bytes = 0;
  int file = -1;
  std::size_t file_offset = 0;  // of place.base in the file
  bool is_freed = false;        // cudaFreeAsync has it
  unsigned references = 1;      // of an IPC mapping
  std::uint64_t inode = 0;      // of an IPC mapping
};

// By base. The mutex of the runtime guards it.
std::map<std::uintptr_t, Allocation>& allocations();
Allocation* find_allocation(const void* p);

// A mapping of `file` in the window of `device`, `bytes` long, guard pages around it. 0: no room.
// `align`: of the first byte after the guard.
std::uintptr_t map_in_window(int device, int file, std::size_t bytes, std::size_t align);
// Addresses only, for the VMM functions.
std::uintptr_t reserve_in_window(int device, std::size_t bytes, std::size_t align);
void unmap_from_window(std::uintptr_t address, std::size_t bytes);

int shared_file(std::size_t bytes, int device);  // named after the device; -1: none
inline constexpr std::size_t kPage = 4096;
inline std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

// A wild access of a kernel is explained before the process ends. Once per process, and the calling
// OS thread gets a stack for it.
void explain_segv();

}  // namespace cudasim
