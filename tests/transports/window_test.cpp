// Shareable memory and windows.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/transports/ranks.hpp"
#include "transports/memory.hpp"
#include "transports/registry.hpp"

namespace treering::test {
namespace {

TransportOptions small_links() {
  TransportOptions options;
  options.link_bytes = options.cast_bytes = options.sendrecv_bytes = 4096;
  options.timeout_ms = 5000;
  return options;
}

bool is_text(const Status& status, const std::string& part) {
  return !status.ok() && status.message().find(part) != std::string::npos;
}

TEST(Memory, IsZeroedAlignedAndWritable) {
  auto allocated = mem_alloc(10000);
  ASSERT_TRUE(allocated.ok()) << allocated.status().message();
  auto* const bytes = static_cast<unsigned char*>(allocated.value());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes) % 4096, 0U);
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(bytes[i], 0);
  std::memset(bytes, 7, 10000);
  EXPECT_TRUE(mem_free(bytes).ok());
}

TEST(Memory, BadPointersAndSizesAreRefused) {
  EXPECT_EQ(mem_alloc(0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(mem_alloc(SIZE_MAX).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(is_text(mem_alloc(std::size_t{1} << 50).status(), "this machine has"));
  EXPECT_TRUE(mem_free(nullptr).ok());
  int stranger = 0;
  EXPECT_TRUE(is_text(mem_free(&stranger), "is not a block of tr_mem_alloc"));
  auto* const block = static_cast<std::byte*>(mem_alloc(4096).value());
  EXPECT_TRUE(is_text(mem_free(block + 8), "is not a block of tr_mem_alloc"));
  EXPECT_TRUE(mem_free(block).ok());
  EXPECT_TRUE(is_text(mem_free(block), "was freed before"));
}

// Each rank writes into its own window and into a part of everybody else's, and reads all.
std::string use_windows(TestRendezvous& rendezvous) {
  const int me = rendezvous.rank();
  const int ranks = rendezvous.size();
  auto connected = connect_transport(rendezvous, small_links());
  TR_MUST_OK(connected.status());
  // Different sizes and offsets per rank.
  const std::size_t bytes = 5000 + 1000 * static_cast<std::size_t>(me);
  const std::size_t offset = 24 + 8 * static_cast<std::size_t>(me);
  auto* const block = static_cast<std::byte*>(mem_alloc(bytes + offset).value());
  std::byte* const mine = block + offset;
  std::memset(mine, 'a' + me, bytes);
  auto mapped = connected.value()->map_windows(mine, bytes, rendezvous);
  TR_MUST_OK(mapped.status());
  WindowMap map = std::move(mapped).value();
  TR_MUST(map.base[static_cast<std::size_t>(me)] == mine);
  for (int r = 0; r < ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    TR_MUST(map.bytes[i] == 5000 + 1000 * i);
    TR_MUST(map.base[i][0] == static_cast<std::byte>('a' + r));
    TR_MUST(map.base[i][map.bytes[i] - 1] == static_cast<std::byte>('a' + r));
  }
  TR_MUST_EQ(rendezvous.barrier(), "");
  for (int r = 0; r < ranks; ++r)
    map.base[static_cast<std::size_t>(r)][me] = static_cast<std::byte>(me);
  TR_MUST_EQ(rendezvous.barrier(), "");
  for (int r = 0; r < ranks; ++r) TR_MUST(mine[r] == static_cast<std::byte>(r));
  TR_MUST(is_text(mem_free(block), "is still registered"));
  TR_MUST_EQ(rendezvous.barrier(), "");
  if (me == 0) {  // the peers' memory stays mapped here even when they free it
    TR_MUST_EQ(rendezvous.barrier(), "");
    TR_MUST(map.base[1][1] == std::byte{1});
    map = {};
    TR_MUST_OK(mem_free(block));
    return "";
  }
  map = {};
  TR_MUST_OK(mem_free(block));
  return rendezvous.barrier();
}

TEST(Windows, ThreadsReachEachOther) { EXPECT_EQ(run_threads(3, use_windows), ""); }
TEST(Windows, ProcessesReachEachOther) { EXPECT_EQ(run_processes(4, use_windows), ""); }
TEST(Windows, ProcessesOfThreadsReachEachOther) { EXPECT_EQ(run_processes(4, use_windows, 2), ""); }

TEST(Windows, TwoWindowsMayShareABlock) {
  EXPECT_EQ(run_processes(2,
                          [](TestRendezvous& rendezvous) -> std::string {
                            auto connected = connect_transport(rendezvous, small_links());
                            TR_MUST_OK(connected.status());
                            auto* const block = static_cast<std::byte*>(mem_alloc(8192).value());
                            auto low = connected.value()->map_windows(block, 4096, rendezvous);
                            TR_MUST_OK(low.status());
                            auto high =
                                connected.value()->map_windows(block + 4096, 4096, rendezvous);
                            TR_MUST_OK(high.status());
                            const auto peer = static_cast<std::size_t>(1 - rendezvous.rank());
                            TR_MUST(high.value().base[peer] == low.value().base[peer] + 4096);
                            low.value() = {};
                            TR_MUST(is_text(mem_free(block), "is still registered"));
                            high.value() = {};
                            TR_MUST_OK(mem_free(block));
                            return "";
                          }),
            "");
}

TEST(Windows, OtherMemoryOfOneRankIsAnErrorOfAllThatNamesIt) {
  EXPECT_EQ(run_processes(
                3,
                [](TestRendezvous& rendezvous) -> std::string {
                  auto connected = connect_transport(rendezvous, small_links());
                  TR_MUST_OK(connected.status());
                  void* const block = mem_alloc(4096).value();
                  std::vector<char> plain(4096);
                  void* const mine = rendezvous.rank() == 2 ? plain.data() : block;
                  auto mapped = connected.value()->map_windows(mine, 4096, rendezvous);
                  TR_MUST(is_text(mapped.status(), "rank 2: ["));
                  TR_MUST(is_text(mapped.status(), "does not lie in one block of tr_mem_alloc"));
                  TR_MUST(mapped.status().code() == Code::kInvalidArgument);
                  // Past the end of the block, on one rank.
                  mapped = connected.value()->map_windows(block, rendezvous.rank() == 1 ? 4097 : 1,
                                                          rendezvous);
                  TR_MUST(is_text(mapped.status(), "rank 1: ["));
                  // Nothing is held, and the transport still works.
                  TR_MUST_OK(connected.value()->map_windows(block, 4096, rendezvous).status());
                  TR_MUST_OK(mem_free(block));
                  return "";
                }),
            "");
}

}  // namespace
}  // namespace treering::test
