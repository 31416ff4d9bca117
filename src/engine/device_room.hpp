// Room for blocks: a kernel's blocks wait for those of other ranks, so all that may run at once
// must find a place on their GPU. Which ranks share one is known only when all have told.
//
// No CUDA header; builds without CUDA have a stub of device_room (no_cuda.cpp).
#pragma once

#include <string>
#include <vector>

#include "core/status.hpp"
#include "transports/process.hpp"

namespace treering {

// Blocks that one rank reserves: a lane per rank at most (all-to-all), on one channel, or the
// trees' four on all; and for sends and receives two directions, with one peer, a channel. (With
// more peers, blocks serve several.)
struct RankBlocks {
  int collectives = 0;
  int messages = 0;
  constexpr int all() const { return collectives + messages; }
};
constexpr RankBlocks blocks_of_rank(int channels, int ranks) {
  return {4 * channels > ranks ? 4 * channels : ranks, 2 * channels};
}

// What a rank tells of its GPU. Plain bytes.
struct DeviceRoom {
  char bus_id[16] = {};  // empty: it has none
  Token process{};
  int blocks = 0;    // that the GPU holds at once
  int reserved = 0;  // of them, by the communicators of the rank's process
};

// Of the current device; loads the kernels there.
Result<DeviceRoom> device_room();

inline constexpr int kMostChannels = 4;  // where nobody says otherwise

struct ChannelChoice {
  int channels = 0;
  std::string why;  // it is less than what was wanted; else empty
};
// As many channels as fit on all GPUs, `wanted` at most, for the communicator of these ranks; the
// same on all. Error: not even one fits.
Result<ChannelChoice> choose_channels(const std::vector<DeviceRoom>& ranks, int wanted);

}  // namespace treering
