// CallBatch: the collectives of one kernel launch, as the kernel is told of them.
#pragma once

#include <cstdint>
#include <vector>

#include "algos/cuda/call.hpp"
#include "algos/cuda/kernels.hpp"
#include "core/status.hpp"
#include "engine/device_engine.hpp"

namespace treering {

class CallBatch {
 public:
  // Of the communicator of these links, for at most so many blocks.
  CallBatch(const DeviceLinks& links, int max_blocks) : links_(links), max_blocks_(max_blocks) {}

  // Puts the call behind the others if one kernel can run them all: those of one protocol, as long
  // as the kernel's parameter and its blocks suffice. False: it needs another launch. An empty
  // batch takes any call. Calls without an element need no kernel, and are taken.
  Result<bool> add(const CollectiveCall& call);
  bool empty() const { return calls_.empty(); }
  // For the next launch.
  void clear();

  DeviceProtocol protocol() const { return protocol_; }
  cuda::CallList list() const { return {calls_, words_, lanes_, channels_}; }
  // The most data that a block moves at once.
  std::uint64_t longest_slice_bytes() const { return longest_slice_bytes_; }

 private:
  bool has_room(const cuda::DeviceCall& call, std::size_t words) const;

  const DeviceLinks& links_;
  const int max_blocks_;
  DeviceProtocol protocol_ = DeviceProtocol::kSimple;
  std::vector<cuda::DeviceCall> calls_;
  std::vector<std::uint64_t> words_;
  int lanes_ = 1;
  int channels_ = 1;
  std::uint64_t longest_slice_bytes_ = 0;
};

}  // namespace treering
