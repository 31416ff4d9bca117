// Choices and their reasons, for host and device memory.
#include "tuner/choice.hpp"

#include <gtest/gtest.h>

#include "tuner/device_choice.hpp"

namespace treering {
namespace {

// --- Protocols of the device

DeviceChoiceInput on_device(std::uint64_t bytes) {
  DeviceChoiceInput in;
  in.call.size = 4;
  in.call.bytes = bytes;
  in.elem_bytes = 4;
  in.channels = 4;
  in.max_blocks = 16;
  in.slot_bytes[0] = 64 << 10;
  in.slot_bytes[1] = 16 << 10;
  in.slot_bytes[2] = 32 << 10;
  in.exists = [](Collective, const char* name, DeviceProtocol) {
    const std::string_view there = name;
    return there == "ring" || there == "two_shot" || there == "one_shot" || there == "local" ||
           there == "direct";
  };
  return in;
}

DeviceChoice chosen(const DeviceChoiceInput& in) {
  const Result<DeviceChoice> c = choose_on_device(in);
  EXPECT_TRUE(c.ok()) << c.status().message();
  return c.ok() ? c.value() : DeviceChoice{};
}

TEST(Protocol, FollowsTheLengthOfAChunk) {
  for (const bool whole_lines : {true, false}) {
    const auto protocol = [&](std::uint64_t bytes) {
      DeviceChoiceInput in = on_device(bytes);
      in.call.forced = "ring";  // four chunks
      if (!whole_lines) in.why_no_ll128 = "the links tear lines";
      return chosen(in).protocol;
    };
    EXPECT_EQ(protocol(8), DeviceProtocol::kLL);
    EXPECT_EQ(protocol(32 << 10), DeviceProtocol::kLL);
    EXPECT_EQ(protocol((32 << 10) + 4),
              whole_lines ? DeviceProtocol::kLL128 : DeviceProtocol::kSimple);
    EXPECT_EQ(protocol(1 << 20), whole_lines ? DeviceProtocol::kLL128 : DeviceProtocol::kSimple);
    EXPECT_EQ(protocol((1 << 20) + 4), DeviceProtocol::kSimple);
  }
  DeviceChoiceInput in = on_device(0);
  in.call.collective = Collective::kAllGather;
  in.call.uneven = true;
  EXPECT_EQ(chosen(in).protocol, DeviceProtocol::kSimple);
}

TEST(Protocol, SlicesFitTheSlots) {
  for (const char* name : {"Simple", "LL", "LL128"}) {
    for (std::uint64_t bytes = 8; bytes <= 64 << 20; bytes *= 8) {
      DeviceChoiceInput in = on_device(bytes);
      in.protocol = name;
      const DeviceChoice c = chosen(in);
      const std::uint32_t slot = in.slot_bytes[static_cast<int>(c.protocol)];
      EXPECT_STREQ(device_protocol_name(c.protocol), name);
      EXPECT_LE(c.slice_elems * in.elem_bytes, slot_data_bytes(c.protocol, slot));
      EXPECT_GE(c.channels, 1);
      EXPECT_LE(c.channels, 4);
    }
  }
  EXPECT_EQ(slot_data_bytes(DeviceProtocol::kSimple, 1024), 1024u);
  EXPECT_EQ(slot_data_bytes(DeviceProtocol::kLL, 1024), 512u);
  EXPECT_EQ(slot_data_bytes(DeviceProtocol::kLL128, 1024), 960u);
}

TEST(Protocol, IsForcedOrRefusedWithAReason) {
  DeviceChoiceInput in = on_device(8);
  in.protocol = "LL128";
  EXPECT_EQ(chosen(in).protocol, DeviceProtocol::kLL128);
  EXPECT_STREQ(chosen(in).why_protocol, "forced by the caller");
  in.why_no_ll128 = "the links tear lines";
  EXPECT_EQ(choose_on_device(in).status().message(),
            "protocol LL128 was forced, but the links tear lines");
  in.protocol = "LL256";
  EXPECT_EQ(choose_on_device(in).status().message(),
            "there is no protocol \"LL256\"; there are: Simple, LL, LL128");
  in.protocol = "LL128";
  in.why_no_ll128 = {};
  in.slot_bytes[2] = 0;
  EXPECT_EQ(choose_on_device(in).status().message(),
            "protocol LL128 was forced, but this build has none");
}

TEST(Protocol, IsExplained) {
  DeviceChoiceInput in = on_device(0);
  const std::string text = explain_device_choices(in);
  for (const char* words : {"from 8 bytes: one_shot, LL (", ", LL128 (", ", Simple (",
                            "; short chunks: the quickest hop)"}) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace treering
