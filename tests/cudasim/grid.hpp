// How a grid runs: its blocks get a place on a multiprocessor, then an OS thread.
#pragma once

#include "block.hpp"

namespace cudasim {

// What a multiprocessor has room for; the numbers of compute capability 9.0, and 64 registers a
// thread.
inline constexpr unsigned kThreadsPerSm = 1024;
inline constexpr unsigned kBlocksPerSm = 32;
inline constexpr std::size_t kSharedPerSm = std::size_t{228} << 10;
inline constexpr std::size_t kSharedPerBlock = std::size_t{48} << 10;
inline constexpr std::size_t kSharedPerBlockOptin = std::size_t{227} << 10;
inline constexpr std::size_t kSharedReserved = 1024;

unsigned blocks_per_sm(unsigned threads, std::size_t shared_bytes);

// Returns when all blocks have ended. Blocks that find no place wait until others have ended, as on
// a GPU: a grid that spins on itself must fit.
void run_grid(const Launch& launch);

}  // namespace cudasim
