// DeviceChoice: which kernel serves a call on device memory, and how the vector is cut for it.
//
// As for the host (tuner/choice.hpp), every input is the same on all ranks, so all choose alike.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/device_link.hpp"
#include "core/status.hpp"
#include "tuner/choice.hpp"

namespace treering {

// Which moves between windows run on copy engines (TR_OPT_COPY_ENGINE). With it the caller promises
// that buffers lie at the same places on all ranks.
enum class CopyUse : std::uint8_t { kNone, kLong, kAll };

struct DeviceChoiceInput {
  ChoiceInput call;  // link_bytes and cast_bytes are not looked at
  std::size_t elem_bytes = 1;
  int channels = 1;
  int max_blocks = 1;
  std::uint32_t slot_bytes[kNumDeviceProtocols] = {};
  std::string_view protocol;      // forced: "Simple", "LL", "LL128"; empty = choose
  std::string_view why_no_ll128;  // what keeps the links from it; empty: nothing
  CopyUse copy_use = CopyUse::kNone;
  std::string_view why_no_copies;  // by copy engines; empty: there are
  // Is there a kernel for it?
  std::function<bool(Collective, const char*, DeviceProtocol)> exists;
};

struct DeviceChoice {
  const algos::Algorithm* algorithm = nullptr;
  DeviceProtocol protocol = DeviceProtocol::kSimple;
  bool by_copies = false;  // no kernel: DeviceEngine::copy, and no protocol
  int lanes = 1;
  int channels = 1;
  std::uint64_t slice_elems = 1;
  const char* why = "";  // static texts
  const char* why_protocol = "";
};

Result<DeviceChoice> choose_on_device(const DeviceChoiceInput& input);

// For tr_comm_explain, as explain_choices.
std::string explain_device_choices(DeviceChoiceInput input);

// Of a send or receive of call.bytes: it follows from them and from what all ranks share.
std::uint64_t message_slice_elems(const DeviceChoiceInput& input);

}  // namespace treering
