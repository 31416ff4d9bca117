// Choices and their reasons, for host and device memory.
#include "tuner/choice.hpp"

#include <gtest/gtest.h>

#include "tuner/device_choice.hpp"

namespace treering {
namespace {

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

// --- Algorithms

std::string why_not(const ChoiceInput& in) { return choose(in).status().message(); }
std::string why_not(const DeviceChoiceInput& in) { return choose_on_device(in).status().message(); }

TEST(Algorithm, HasItsReasonOnHostAndDevice) {
  DeviceChoiceInput in = on_device(8);
  EXPECT_STREQ(choose(in.call).value().algorithm->name, "one_shot");
  EXPECT_STREQ(choose(in.call).value().why,
               "small: one step of latency, everyone folds everything");
  EXPECT_STREQ(chosen(in).algorithm->name, "one_shot");
  EXPECT_STREQ(chosen(in).why, "small: one step of latency");
  in.call.size = 20;
  in.call.ordered = true;
  in.call.bytes = 1 << 20;
  EXPECT_STREQ(choose(in.call).value().algorithm->name, "two_shot");
  EXPECT_STREQ(chosen(in).algorithm->name, "two_shot");
  EXPECT_STREQ(chosen(in).why, "keeps the order of the ranks");
  in.call.size = 1;
  EXPECT_STREQ(chosen(in).why, "one rank: a copy");
}

TEST(Algorithm, IsForcedOrRefusedWithAReason) {
  DeviceChoiceInput in = on_device(8);
  in.call.forced = "ring";
  EXPECT_STREQ(choose(in.call).value().why, "forced by the caller");
  EXPECT_STREQ(chosen(in).why, "forced by the caller");
  in.call.ordered = true;
  const std::string order =
      "all_reduce algorithm \"ring\" was forced but cannot serve this call: TR_OPT_ORDERED asks "
      "for a fold in rank order";
  EXPECT_EQ(why_not(in.call), order);
  EXPECT_EQ(why_not(in), order);
  in.call.forced = "rings";
  EXPECT_EQ(why_not(in.call), "there is no all_reduce algorithm \"rings\"; there are: " +
                                  algos::algorithm_names(Collective::kAllReduce, 4));
  in.call.forced = "window";
  EXPECT_EQ(why_not(in),
            "all_reduce algorithm \"window\" was forced, but there is no kernel for it; there are: "
            "ring, one_shot, two_shot, direct");
}

TEST(Algorithm, ThatFitsMayBeMissing) {
  DeviceChoiceInput in = on_device(8);
  in.call.collective = Collective::kAllGather;
  in.call.ordered = in.call.in_place = true;
  EXPECT_EQ(why_not(in.call),
            "no all_gather algorithm fits this call: TR_OPT_ORDERED is set; in place; 4 ranks");
  EXPECT_EQ(why_not(in),
            "no all_gather kernel fits this call: TR_OPT_ORDERED is set; in place; 4 ranks");
}

// --- Registered buffers

TEST(Windows, ServeWhatIsNotSmall) {
  DeviceChoiceInput in = on_device(8);
  in.call.windows = true;
  in.exists = [](Collective, const char*, DeviceProtocol) { return true; };
  const auto on_both = [&](std::uint64_t bytes) {
    in.call.bytes = bytes;
    return std::string(choose(in.call).value().algorithm->name) + ", " + chosen(in).algorithm->name;
  };
  EXPECT_EQ(on_both(8 << 10), "one_shot, one_shot");
  EXPECT_EQ(on_both((8 << 10) + 1), "window, window_one_shot");
  EXPECT_EQ(on_both(64 << 10), "window, window_one_shot");
  EXPECT_EQ(on_both((64 << 10) + 1), "window, window");
  in.call.in_place = true;  // others would still read what is overwritten
  EXPECT_EQ(on_both(64 << 10), "window, window");
  in.call.in_place = false;
  in.call.size = 9;
  EXPECT_EQ(on_both(16 << 10), "window, window");
  in.call.size = 4;
  in.call.per_rank_factor = true;
  EXPECT_EQ(on_both(1 << 20), "two_shot, two_shot");
  in.call.per_rank_factor = false;
  in.call.windows = false;
  EXPECT_EQ(on_both(1 << 20), "two_shot, two_shot");
  for (const Collective c : {Collective::kAllGather, Collective::kReduceScatter}) {
    in.call.collective = c;
    in.call.windows = true;
    EXPECT_EQ(on_both(8 << 10), "direct, direct");
    EXPECT_EQ(on_both(16 << 10), "window, window");
    in.call.uneven = true;  // the lengths are not known
    EXPECT_EQ(on_both(0), "window, window");
    in.call.uneven = false;
  }
}

TEST(Windows, AreCutIntoOneSliceAChannel) {
  DeviceChoiceInput in = on_device(std::uint64_t{64} << 20);
  in.call.windows = true;
  in.exists = [](Collective, const char*, DeviceProtocol) { return true; };
  const DeviceChoice c = chosen(in);
  EXPECT_EQ(c.protocol, DeviceProtocol::kSimple);
  EXPECT_EQ(c.channels, in.channels);
  const std::uint64_t chunk_elems = in.call.bytes / 4 / in.elem_bytes;
  EXPECT_EQ(c.slice_elems, chunk_elems / static_cast<std::uint64_t>(in.channels));
}

TEST(Windows, AreNotForWhoWantsAnotherProtocol) {
  DeviceChoiceInput in = on_device(1 << 20);
  in.call.windows = true;
  in.exists = [](Collective, const char* name, DeviceProtocol protocol) {
    return std::string(name) != "window" || protocol == DeviceProtocol::kSimple;
  };
  EXPECT_STREQ(chosen(in).algorithm->name, "window");
  in.protocol = "Simple";
  EXPECT_STREQ(chosen(in).algorithm->name, "window");
  in.protocol = "LL";
  EXPECT_STREQ(chosen(in).algorithm->name, "two_shot");
  EXPECT_EQ(chosen(in).protocol, DeviceProtocol::kLL);
  in.call.forced = "window";
  EXPECT_EQ(why_not(in), "protocol LL was forced, but algorithms on windows signal over Simple");
}

// --- Protocols of the device

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

// --- Copy engines

DeviceChoiceInput in_windows(Collective collective, std::uint64_t bytes) {
  DeviceChoiceInput in = on_device(bytes);
  in.call.collective = collective;
  in.call.windows = true;
  in.copy_use = CopyUse::kLong;
  in.exists = [](Collective, const char* name, DeviceProtocol) {
    return std::string_view(name) == "direct" || std::string_view(name) == "pairwise";
  };
  return in;
}

TEST(CopyEngines, ServeLongMovesInWindows) {
  for (const Collective c :
       {Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll}) {
    EXPECT_FALSE(chosen(in_windows(c, (1 << 20) - 1)).by_copies);
    const DeviceChoice choice = chosen(in_windows(c, 1 << 20));
    EXPECT_TRUE(choice.by_copies);
    EXPECT_STREQ(choice.algorithm->name, "window");
  }
  EXPECT_FALSE(chosen(in_windows(Collective::kGather, 1 << 20)).by_copies);
  EXPECT_FALSE(chosen(in_windows(Collective::kScatter, 1 << 20)).by_copies);
}

TEST(CopyEngines, ServeWhatTheyCanWhenForced) {
  for (const bool by_name : {false, true}) {
    for (const Collective c : {Collective::kBroadcast, Collective::kAllGather,
                               Collective::kAllToAll, Collective::kGather}) {
      DeviceChoiceInput in = in_windows(c, 8);
      if (by_name) {
        in.call.forced = "window";
      } else {
        in.copy_use = CopyUse::kAll;
      }
      EXPECT_TRUE(chosen(in).by_copies);
    }
  }
  DeviceChoiceInput in = in_windows(Collective::kScatter, 1 << 20);
  in.copy_use = CopyUse::kAll;
  EXPECT_FALSE(chosen(in).by_copies);
}

// What must be the same on all ranks, and is known to each, keeps them away.
TEST(CopyEngines, DoNotServe) {
  const auto serve = [](auto change) {
    DeviceChoiceInput in = in_windows(Collective::kAllToAll, 1 << 20);
    in.copy_use = CopyUse::kAll;
    EXPECT_TRUE(chosen(in).by_copies);
    change(in);
    return chosen(in).by_copies;
  };
  EXPECT_FALSE(serve([](DeviceChoiceInput& in) { in.call.windows = false; }));
  EXPECT_FALSE(serve([](DeviceChoiceInput& in) { in.call.uneven = true; }));
  EXPECT_FALSE(serve([](DeviceChoiceInput& in) { in.call.in_place = true; }));
  EXPECT_FALSE(serve([](DeviceChoiceInput& in) { in.call.forced = "pairwise"; }));
  EXPECT_FALSE(serve([](DeviceChoiceInput& in) { in.why_no_copies = "the driver is old"; }));
  EXPECT_FALSE(serve([](DeviceChoiceInput& in) { in.copy_use = CopyUse::kNone; }));
  EXPECT_FALSE(serve([](DeviceChoiceInput& in) {
    in.copy_use = CopyUse::kLong;
    in.protocol = "Simple";
  }));
}

}  // namespace
}  // namespace treering
