#include "engine/device_room.hpp"

#include <algorithm>
#include <map>

namespace treering {
namespace {

struct Gpu {
  int blocks = 0;
  int ranks = 0;                  // of this communicator
  std::map<Token, int> reserved;  // by each process

  int all_reserved() const {
    int sum = 0;
    for (const auto& [process, blocks_there] : reserved) sum += blocks_there;
    return sum;
  }
  int need(int channels, int size) const { return ranks * blocks_of_rank(channels, size).all(); }
  bool holds(int channels, int size) const {
    return all_reserved() + need(channels, size) <= blocks;
  }
};

// "GPU 0000:10:00.0 holds 132 blocks at once, of which other communicators have reserved 0; 8 ranks
// of this one need "
std::string words(const std::string& bus_id, const Gpu& gpu) {
  return "GPU " + bus_id + " holds " + std::to_string(gpu.blocks) +
         " blocks at once, of which other communicators have reserved " +
         std::to_string(gpu.all_reserved()) + "; " + std::to_string(gpu.ranks) +
         (gpu.ranks == 1 ? " rank of this one needs " : " ranks of this one need ");
}

std::string text_of(int channels) {
  return std::to_string(channels) + (channels == 1 ? " channel" : " channels");
}

}  // namespace

Result<ChannelChoice> choose_channels(const std::vector<DeviceRoom>& ranks, int wanted) {
  std::map<std::string, Gpu> gpus;
  for (const DeviceRoom& rank : ranks) {
    Gpu& gpu = gpus[rank.bus_id];
    // Processes may see different parts of a GPU (MPS), and ranks of a process look at different
    // moments.
    gpu.blocks = gpu.ranks == 0 ? rank.blocks : std::min(gpu.blocks, rank.blocks);
    ++gpu.ranks;
    int& reserved = gpu.reserved[rank.process];
    reserved = std::max(reserved, rank.reserved);
  }
  const int size = static_cast<int>(ranks.size());
  ChannelChoice choice{wanted, ""};
  for (const auto& [bus_id, gpu] : gpus) {
    if (gpu.holds(choice.channels, size)) continue;
    choice.why =
        words(bus_id, gpu) + std::to_string(gpu.need(wanted, size)) + " with " + text_of(wanted);
    while (choice.channels > 0 && !gpu.holds(choice.channels, size)) --choice.channels;
    if (choice.channels == 0) {
      return unsupported(words(bus_id, gpu) + std::to_string(gpu.need(1, size)) +
                         " even with 1 channel: destroy some communicators, give them fewer "
                         "channels (TR_CUDA_CHANNELS), or use "
                         "more GPUs");
    }
  }
  return choice;
}

}  // namespace treering
