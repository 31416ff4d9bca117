// The links under calls of the test's own: shuffled schedules, and message numbers at the ends of
// LL's flag. Built with a fault in the kernels (meson.build), the test of that fault must see wrong
// numbers.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "algos/cuda/fault.cuh"
#include "algos/cuda/ptx_memory.cuh"
#include "cuda/engines.hpp"
#include "cuda/few_kernels.hpp"
#include "cuda/support.hpp"
#include "cudasim/control.hpp"

namespace treering::test {
namespace {

using cuda::Fault;
using cuda::kFault;
using cuda::LlLine;
using cuda::Vec16;

constexpr std::uint32_t kLlSlot = 1024;  // 64 lines: 512 bytes of data
constexpr std::uint32_t kLl128Slot = 2 * kLl128RowBytes;

DeviceLinkOptions small_links(int channels) {
  DeviceLinkOptions options;
  options.channels = channels;
  options.slot_bytes[static_cast<int>(DeviceProtocol::kSimple)] = 1024;
  options.slot_bytes[static_cast<int>(DeviceProtocol::kLL)] = kLlSlot;
  options.slot_bytes[static_cast<int>(DeviceProtocol::kLL128)] = kLl128Slot;
  return options;
}

// What rank r gives in call `i` as element k: different in all, so that no old number is right.
std::int32_t value(int r, int i, std::uint64_t k) {
  return static_cast<std::int32_t>(k * 2654435761u + static_cast<std::uint32_t>(i) * 40503u +
                                   static_cast<std::uint32_t>(r) * 97u + 1);
}
std::int32_t sum_of(int ranks, int i, std::uint64_t k) {
  std::uint32_t sum = 0;
  for (int r = 0; r < ranks; ++r) sum += static_cast<std::uint32_t>(value(r, i, k));
  return static_cast<std::int32_t>(sum);
}

// No sum is that: a result that is not there yet.
constexpr std::int32_t kNoResult = -0x0BADBAD;
// How late a rank comes that is late: a rank that believes lines of long ago has stored results of
// its own by then. With the fault that happens always, but on a loaded machine not soon.
constexpr std::chrono::milliseconds kLate(kFault == Fault::kNoCover ? 10'000 : 30);

// One all-reduce by all ranks, rank `late` after the others (-1: none): when one of them has a
// result, or after kLate. How many elements are wrong on any rank, and nobody says so: a call that
// failed has none.
class Sums {
 public:
  Sums(Engines& engines, std::uint64_t most) : engines_(engines) {
    for (int r = 0; r < engines.size(); ++r) {
      in_.push_back(std::make_unique<DeviceArray<std::int32_t>>(most, 0));
      out_.push_back(std::make_unique<DeviceArray<std::int32_t>>(most, 0));
    }
  }
  std::size_t run(std::uint64_t count, DeviceProtocol protocol, std::uint64_t slice_elems,
                  int late = -1) {
    const int call = calls_++;
    const int n = engines_.size();
    for (int r = 0; r < n; ++r) {
      for (std::uint64_t k = 0; k < count; ++k) {
        in(r)[k] = value(r, call, k);
        out(r)[k] = kNoResult;
      }
    }
    const auto start = [&](int r) {
      const Status s = engines_.start_sum(r, in(r), out(r), count, protocol, slice_elems);
      EXPECT_TRUE(s.ok() || kFault != Fault::kNone) << s.message();
    };
    for (int r = 0; r < n; ++r) {
      if (r != late) start(r);
    }
    if (late >= 0) {
      const auto end = std::chrono::steady_clock::now() + kLate;
      while (!has_results(late, count) && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      start(late);
    }
    std::size_t wrong = 0;
    for (int r = 0; r < n; ++r) {
      const Status s = engines_[r].drain();
      EXPECT_TRUE(s.ok() || kFault != Fault::kNone) << s.message();
      if (!s.ok()) return 0;
    }
    for (int r = 0; r < n; ++r) {
      for (std::uint64_t k = 0; k < count; ++k) wrong += out(r)[k] != sum_of(n, call, k) ? 1 : 0;
    }
    return wrong;
  }

 private:
  std::int32_t* in(int r) const { return in_[static_cast<std::size_t>(r)]->get(); }
  std::int32_t* out(int r) const { return out_[static_cast<std::size_t>(r)]->get(); }
  // Has any rank but `late` stored some? A kernel may be at it.
  bool has_results(int late, std::uint64_t count) const {
    for (int r = 0; r < engines_.size(); ++r) {
      for (std::uint64_t k = 0; r != late && k < count; ++k) {
        if (std::atomic_ref(out(r)[k]).load(std::memory_order_relaxed) != kNoResult) return true;
      }
    }
    return false;
  }

  Engines& engines_;
  std::vector<std::unique_ptr<DeviceArray<std::int32_t>>> in_, out_;
  int calls_ = 0;
};

TEST(Memory, IsWhatTheReadmeSays) {
  for (const bool vmm : {false, true}) {
    cudasim::set_vmm(vmm);
    for (const int ranks : {1, 2, 3}) {
      Engines engines(ranks, DeviceLinkOptions{});
      ASSERT_EQ(engines.error(), "");
      const double mib = static_cast<double>(engines[0].links().device_bytes()) / (1 << 20);
      if (vmm) {
        EXPECT_EQ(mib, 4 * ranks + 2);  // in whole units of 2 MiB
      } else {
        EXPECT_GE(mib, 4.5 * ranks);
        EXPECT_LE(mib, 4.6 * ranks);
      }
    }
  }
}

// --- Shuffled schedules

// Wrong elements under a seed; slots are used many times over, and LL128's have all their lines in
// use.
std::size_t wrong_under(std::uint64_t seed, DeviceProtocol protocol) {
  Engines engines(3, small_links(2), 5'000);
  EXPECT_EQ(engines.error(), "");
  Sums sums(engines, 3000);
  cudasim::set_seed(seed);
  std::size_t wrong = 0;
  const std::uint64_t slice = protocol == DeviceProtocol::kLL128 ? 240 : 64;
  for (const std::uint64_t count : {3000, 5, 700, 3000, 1}) {
    wrong += sums.run(count, protocol, slice);
  }
  cudasim::set_seed(0);
  return wrong;
}

constexpr std::uint64_t kSeeds[] = {11, 12};

TEST(Fuzz, RingsAreRightUnderBothSeedsAndAFaultIsNot) {
  for (const std::uint64_t seed : kSeeds) {
    for (const DeviceProtocol protocol :
         {DeviceProtocol::kSimple, DeviceProtocol::kLL, DeviceProtocol::kLL128}) {
      const bool broken =
          (kFault == Fault::kNoBarrierBeforePost && protocol == DeviceProtocol::kSimple) ||
          (kFault == Fault::kOneFlagOfTwo && protocol == DeviceProtocol::kLL) ||
          (kFault == Fault::kOneFlagOfFour && protocol == DeviceProtocol::kLL128);
      if (kFault != Fault::kNone && !broken) continue;  // the other protocol may break, too
      // A seed says in which order the threads of a block run; blocks run as the machine likes.
      std::size_t wrong = wrong_under(seed, protocol), runs = 1;
      for (; broken && wrong == 0 && runs < 30; ++runs) wrong = wrong_under(seed, protocol);
      std::printf("seed %llu, %s: %zu wrong, runs %zu\n", static_cast<unsigned long long>(seed),
                  device_protocol_name(protocol), wrong, runs);
      EXPECT_EQ(wrong > 0, broken);
    }
  }
}

// Sends to the next rank, several in a row.
std::size_t wrong_messages_under(std::uint64_t seed) {
  Engines engines(3, small_links(2), 5'000);
  EXPECT_EQ(engines.error(), "");
  constexpr std::uint64_t kMost = 6000;
  std::vector<std::unique_ptr<DeviceArray<std::int32_t>>> in, out;
  for (int r = 0; r < engines.size(); ++r) {
    in.push_back(std::make_unique<DeviceArray<std::int32_t>>(kMost, 0));
    out.push_back(std::make_unique<DeviceArray<std::int32_t>>(kMost, 0));
  }
  cudasim::set_seed(seed);
  std::size_t wrong = 0;
  int call = 0;
  for (const std::uint64_t count : {6000, 5, 700, 6000}) {
    ++call;
    for (std::size_t r = 0; r < in.size(); ++r) {
      for (std::uint64_t k = 0; k < count; ++k)
        in[r]->get()[k] = value(static_cast<int>(r), call, k);
      const Status s =
          engines.start_pass(static_cast<int>(r), in[r]->get(), out[r]->get(), count, 64);
      EXPECT_TRUE(s.ok() || kFault != Fault::kNone) << s.message();
    }
    for (int r = 0; r < engines.size(); ++r) {
      const Status s = engines[r].drain();
      EXPECT_TRUE(s.ok() || kFault != Fault::kNone) << s.message();
    }
    for (std::size_t r = 0; r < in.size(); ++r) {
      const int last = (static_cast<int>(r) + engines.size() - 1) % engines.size();
      for (std::uint64_t k = 0; k < count; ++k)
        wrong += out[r]->get()[k] != value(last, call, k) ? 1 : 0;
    }
  }
  cudasim::set_seed(0);
  return wrong;
}

TEST(Fuzz, SoAreSendsAndReceives) {
  if (kFault != Fault::kNone && kFault != Fault::kNoBarrierBeforePost) return;  // LL's
  for (const std::uint64_t seed : kSeeds) {
    const std::size_t wrong = wrong_messages_under(seed);
    std::printf("seed %llu: %zu wrong\n", static_cast<unsigned long long>(seed), wrong);
    EXPECT_EQ(wrong > 0, kFault == Fault::kNoBarrierBeforePost);
  }
}

// Sums of sums, in place, with nothing between two calls: each reads what peers have stored in the
// last one.
std::size_t wrong_windows_under(std::uint64_t seed) {
  constexpr int kRanks = 3, kCalls = 4;
  constexpr int kSums = kCalls * (kFault == Fault::kNone ? 1 : cuda::kFewKernelsTurns);
  constexpr std::uint64_t kCount = 40'000;  // some vectors a thread
  Engines engines(kRanks, small_links(2), 5'000);
  std::vector<std::unique_ptr<DeviceArray<std::int32_t>>> arrays;
  for (int r = 0; r < kRanks; ++r) {
    arrays.push_back(std::make_unique<DeviceArray<std::int32_t>>(kCount, 0));
  }
  const auto array = [&](int r) { return arrays[static_cast<std::size_t>(r)]->get(); };
  engines.add_window(array, kCount * sizeof(std::int32_t));
  EXPECT_EQ(engines.error(), "");
  for (int r = 0; r < kRanks; ++r) {
    for (std::uint64_t k = 0; k < kCount; ++k) array(r)[k] = value(r, 0, k);
  }
  cudasim::set_seed(seed);
  for (int call = 0; call < kCalls; ++call) {
    for (int r = 0; r < kRanks; ++r) {
      const Status s = engines.start_window_sum(r, kCount);
      EXPECT_TRUE(s.ok() || kFault != Fault::kNone) << s.message();
    }
  }
  for (int r = 0; r < kRanks; ++r) {
    const Status s = engines[r].drain();
    EXPECT_TRUE(s.ok() || kFault != Fault::kNone) << s.message();
  }
  cudasim::set_seed(0);
  std::size_t wrong = 0;
  for (std::uint64_t k = 0; k < kCount; ++k) {
    auto sum = static_cast<std::uint32_t>(sum_of(kRanks, 0, k));
    for (int i = 1; i < kSums; ++i) sum *= kRanks;
    for (int r = 0; r < kRanks; ++r) wrong += array(r)[k] != static_cast<std::int32_t>(sum) ? 1 : 0;
  }
  return wrong;
}

TEST(Fuzz, SoAreSumsOfWindows) {
  if (kFault != Fault::kNone && kFault != Fault::kNoBarrierBeforePost) return;  // LL's
  for (const std::uint64_t seed : kSeeds) {
    const bool broken = kFault != Fault::kNone;
    std::size_t wrong = wrong_windows_under(seed), runs = 1;
    for (; broken && wrong == 0 && runs < 30; ++runs) wrong = wrong_windows_under(seed);
    std::printf("seed %llu: %zu wrong, runs %zu\n", static_cast<unsigned long long>(seed), wrong,
                runs);
    EXPECT_EQ(wrong > 0, broken);
  }
}

// --- Message numbers at the ends of LL's flag

constexpr std::uint64_t kHalf = std::uint64_t{1} << 31;

template <class F>
void for_each_end(Engines& engines, DeviceProtocol protocol, F f) {
  for (int r = 0; r < engines.size(); ++r) {
    const DeviceLinkTable& table = engines[r].links().table();
    for (int cls = 0; cls < device_link_classes(protocol); ++cls) {
      for (int peer = 0; peer < table.size; ++peer) {
        f(table.ends[table.index(protocol, 0, DeviceLinkClass(cls), peer)]);
      }
    }
  }
}

// As if `number` messages had been sent over each link, all read. (A head has one reader and one
// writer: two ends name it.)
void set_number(Engines& engines, DeviceProtocol protocol, std::uint64_t number) {
  for_each_end(engines, protocol, [&](DeviceLinkEnds& end) {
    end.tx.next = end.tx.released = end.rx.next = number;
    *const_cast<std::uint64_t*>(end.tx.head) = number;
  });
}

// All lines of the links' slots as messages wrote them 2^32 before number.. number + 3.
void write_lines_of_long_ago(Engines& engines, std::uint64_t number) {
  for_each_end(engines, DeviceProtocol::kLL, [&](DeviceLinkEnds& end) {
    for (std::uint64_t m = number; m < number + kDeviceSlots; ++m) {
      auto* line = reinterpret_cast<LlLine*>(const_cast<std::byte*>(end.rx.slots) +
                                             m % kDeviceSlots * kLlSlot);
      const auto flag = static_cast<std::uint32_t>(m + 1);
      for (std::uint32_t i = 0; i < kLlSlot / sizeof(LlLine); ++i) {
        line[i] = {0xBADu, flag, 0xBADu, flag};
      }
    }
  });
  for_each_end(engines, DeviceProtocol::kLL128, [&](DeviceLinkEnds& end) {
    for (std::uint64_t m = number; m < number + kDeviceSlots; ++m) {
      auto* part = reinterpret_cast<Vec16*>(const_cast<std::byte*>(end.rx.slots) +
                                            m % kDeviceSlots * kLl128Slot);
      const std::uint64_t flag = m + 1 - 2 * kHalf;
      for (std::uint32_t i = 0; i < kLl128Slot / sizeof(Vec16); ++i) {
        part[i] = {0xBADu, i % 8 == 7 ? flag : 0xBADu};
      }
    }
  });
}

constexpr std::uint64_t kShort = 4;       // elements: a line per message
constexpr std::uint64_t kLong = 2 * 128;  // two chunks of whole slots
constexpr std::uint64_t kSlice = 128;

// A ring of two sends two messages an all-reduce. Four short ones pass the numbers at which slots
// are filled; the long ones after them, with a late writer, would believe what is older.
std::size_t wrong_after_wrap(std::uint64_t first) {
  std::size_t wrong = 0;
  for (const int late : {0, 1}) {
    Engines engines(2, small_links(1));
    EXPECT_EQ(engines.error(), "");
    Sums sums(engines, kLong);
    set_number(engines, DeviceProtocol::kLL, first);
    write_lines_of_long_ago(engines, first + 8);
    for (int i = 0; i < 4; ++i) wrong += sums.run(kShort, DeviceProtocol::kLL, kSlice);
    for (int i = 0; i < 2; ++i) wrong += sums.run(kLong, DeviceProtocol::kLL, kSlice, late);
    wrong += sums.run(kLong, DeviceProtocol::kSimple, kSlice);
  }
  return wrong;
}

TEST(Wrap, LinesOf2To32MessagesAgoAreNotBelieved) {
  for (const std::uint64_t turn : {kHalf, 2 * kHalf, 3 * kHalf, std::uint64_t{1} << 40}) {
    EXPECT_EQ(wrong_after_wrap(turn - 2) > 0, kFault == Fault::kNoCover) << turn;
  }
}

// The flag of message 2^32 - 1 is 0, as memory is that was never written.
TEST(Wrap, MemoryThatWasNeverWrittenIsNotBelieved) {
  std::size_t wrong = 0;
  for (const int late : {0, 1}) {
    Engines engines(2, small_links(1));
    ASSERT_EQ(engines.error(), "");
    Sums sums(engines, kLong);
    for (int i = 0; i < 4; ++i) wrong += sums.run(kShort, DeviceProtocol::kLL, kSlice);  // 0-7
    // 8, 9: message 2^32 must not find the lines of message 0, as if there were none in between.
    wrong += sums.run(kLong, DeviceProtocol::kLL, kSlice);
    set_number(engines, DeviceProtocol::kLL, 2 * kHalf - 3);
    wrong += sums.run(kShort, DeviceProtocol::kLL, kSlice);       // -3, -2
    wrong += sums.run(kLong, DeviceProtocol::kLL, kSlice, late);  // -1: needs no other before it
    for (int i = 0; i < 5; ++i)
      wrong += sums.run(i % 2 ? kLong : kShort, DeviceProtocol::kLL, kSlice);
  }
  EXPECT_EQ(wrong > 0, kFault == Fault::kNoCover);
}

// LL128's flag is the whole number: nothing covers old lines, and nothing needs to.
TEST(Flags, OfLL128Have64Bits) {
  for (const int late : {0, 1}) {
    Engines engines(2, small_links(1));
    ASSERT_EQ(engines.error(), "");
    Sums sums(engines, kLong);
    set_number(engines, DeviceProtocol::kLL128, 2 * kHalf - 2);
    write_lines_of_long_ago(engines, 2 * kHalf - 2);
    for (int i = 0; i < 4; ++i) {  // through 2^32, at which the lines of 0 and 1 have 1 and 2
      EXPECT_EQ(sums.run(kLong, DeviceProtocol::kLL128, kSlice, i < 2 ? late : -1), 0u);
    }
  }
}

}  // namespace
}  // namespace treering::test
