// The shared-memory transport between threads, between processes, and between both.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <sched.h>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "tests/transports/every_link.hpp"
#include "tests/transports/ranks.hpp"
#include "transports/registry.hpp"

namespace treering::test {
namespace {

std::string use_every_link_here(TestRendezvous& rendezvous) {
  return use_every_link(rendezvous, small_links());
}

class ShmLinks : public testing::TestWithParam<std::tuple<int, int>> {};

// Threads per process; 0: all ranks are threads of this process.
TEST_P(ShmLinks, EveryLinkCarriesItsMessages) {
  const auto [ranks, threads] = GetParam();
  EXPECT_EQ(threads == 0 ? run_threads(ranks, use_every_link_here)
                         : run_processes(ranks, use_every_link_here, threads),
            "");
}
INSTANTIATE_TEST_SUITE_P(Threads, ShmLinks,
                         testing::Combine(testing::Values(1, 2, 3, 5, 8), testing::Values(0)));
INSTANTIATE_TEST_SUITE_P(Processes, ShmLinks,
                         testing::Combine(testing::Values(2, 3, 5, 8), testing::Values(1)));
INSTANTIATE_TEST_SUITE_P(ProcessesOfThreads, ShmLinks,
                         testing::Values(std::tuple(5, 2), std::tuple(8, 4)));

TEST(Shm, LinkEndsKeepTheirAddressAndRefuseStrangers) {
  EXPECT_EQ(run_threads(2,
                        [](TestRendezvous& rendezvous) -> std::string {
                          auto connected = connect_transport(rendezvous, small_links());
                          TR_MUST_OK(connected.status());
                          Transport& transport = *connected.value();
                          const int me = rendezvous.rank();
                          const LinkId out{LinkId::Kind::kPair, 0, me, 1 - me};
                          const LinkId in{LinkId::Kind::kPair, 0, 1 - me, me};
                          FifoTx* const tx = transport.tx(out).value();
                          FifoRx* const rx = transport.rx(in).value();
                          TR_MUST_OK(transport.tx({LinkId::Kind::kPair, 1, me, 1 - me}).status());
                          TR_MUST_OK(transport.rx({LinkId::Kind::kCast, 0, 1 - me, -1}).status());
                          TR_MUST(transport.tx(out).value() == tx);
                          TR_MUST(transport.rx(in).value() == rx);
                          TR_MUST(!transport.tx(in).ok());
                          TR_MUST(!transport.rx(out).ok());
                          TR_MUST(!transport.rx({LinkId::Kind::kCast, 0, me, -1}).ok());
                          TR_MUST(!transport.tx({LinkId::Kind::kPair, 0, me, 2}).ok());
                          TR_MUST(transport.link_data_bytes(LinkId::Kind::kCast) == 32 * 1024);
                          return rendezvous.barrier();
                        }),
            "");
}

// Lines of /proc/self/maps that are memory files of this library, and open descriptors.
struct Usage {
  std::size_t mappings = 0;
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  bool operator==(const Usage&) const = default;
};
std::size_t entries_in(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                std::filesystem::directory_iterator()));
}
Usage usage() {
  Usage now;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    now.mappings += line.find("memfd:treering") != line.npos;
  now.descriptors = entries_in("/proc/self/fd");
  now.threads = entries_in("/proc/self/task");
  return now;
}
std::string text_of(const Usage& usage) {
  return std::to_string(usage.mappings) + " mappings, " + std::to_string(usage.descriptors) +
         " descriptors, " + std::to_string(usage.threads) + " threads";
}

std::string connect_and_drop(TestRendezvous& rendezvous, int times) {
  for (int i = 0; i < times; ++i) {
    auto connected = connect_transport(rendezvous, small_links());
    TR_MUST_OK(connected.status());
    const LinkId id{LinkId::Kind::kCast, 0, rendezvous.rank(), -1};
    TR_MUST_OK(connected.value()->tx(id).status());
  }
  return "";
}

TEST(Shm, TwoHundredCommunicatorsLeakNothingBetweenThreads) {
  (void)run_threads(2, [](TestRendezvous& r) { return connect_and_drop(r, 1); });
  const Usage before = usage();
  EXPECT_EQ(run_threads(2, [](TestRendezvous& r) { return connect_and_drop(r, 200); }), "");
  EXPECT_EQ(text_of(usage()), text_of(before));
}

TEST(Shm, TwoHundredCommunicatorsLeakNothingBetweenProcesses) {
  EXPECT_EQ(run_processes(2,
                          [](TestRendezvous& rendezvous) -> std::string {
                            if (std::string error = connect_and_drop(rendezvous, 1); !error.empty())
                              return error;
                            const Usage before = usage();
                            if (std::string error = connect_and_drop(rendezvous, 200);
                                !error.empty())
                              return error;
                            TR_MUST_EQ(text_of(usage()), text_of(before));
                            return "";
                          }),
            "");
}

TEST(Shm, ManyCommunicatorsShareTheirWatchOfAProcess) {
  EXPECT_EQ(run_processes(3,
                          [](TestRendezvous& rendezvous) -> std::string {
                            const Usage before = usage();
                            std::vector<std::unique_ptr<Transport>> transports;
                            for (int i = 0; i < 10; ++i) {
                              auto connected = connect_transport(rendezvous, small_links());
                              TR_MUST_OK(connected.status());
                              transports.push_back(std::move(connected).value());
                            }
                            const Usage now = usage();
                            TR_MUST(now.mappings == 30);
                            // One pidfd per other process, and the own segments.
                            TR_MUST(now.descriptors == before.descriptors + 2 + transports.size());
                            return rendezvous.barrier();
                          }),
            "");
}

// All memory that this process shares is memory files without a name (and the test's own
// rendezvous), and no descriptor leads into a folder: so a crash leaves nothing behind.
TEST(Shm, NothingHasAName) {
  EXPECT_EQ(run_processes(
                2,
                [](TestRendezvous& rendezvous) -> std::string {
                  auto connected = connect_transport(rendezvous, small_links());
                  TR_MUST_OK(connected.status());
                  std::size_t segments = 0;
                  std::ifstream maps("/proc/self/maps");
                  for (std::string line; std::getline(maps, line);) {
                    if (line.find(" rw-s ") == line.npos) continue;
                    const bool is_segment = line.find("/memfd:treering (deleted)") != line.npos;
                    TR_MUST(is_segment || line.find("/dev/zero (deleted)") != line.npos);
                    segments += is_segment ? 1 : 0;
                  }
                  TR_MUST(segments == 2);
                  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
                    std::error_code ignored;  // the iterator's own descriptor
                    const std::string path = std::filesystem::read_symlink(entry, ignored).string();
                    TR_MUST(!path.starts_with("/dev/shm") && !path.starts_with("/tmp/treering"));
                  }
                  return rendezvous.barrier();
                }),
            "");
}

TEST(Shm, AProcessMapsASegmentOnce) {
  EXPECT_EQ(run_threads(3,
                        [](TestRendezvous& rendezvous) -> std::string {
                          auto connected = connect_transport(rendezvous, small_links());
                          TR_MUST_OK(connected.status());
                          std::string addresses;
                          for (int r = 0; r < 3; ++r) {
                            void* const board = &connected.value()->board(r);
                            addresses.append(reinterpret_cast<const char*>(&board), sizeof(board));
                          }
                          auto all = rendezvous.all_gather(addresses);
                          TR_MUST_OK(all.status());
                          for (const std::string& other : all.value()) TR_MUST(other == addresses);
                          TR_MUST(usage().mappings == 3);
                          return rendezvous.barrier();
                        }),
            "");
}

// Pages of this process's treering mappings that are in memory, counted by the kernel.
std::size_t resident_pages_by_kernel() {
  std::size_t pages = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:treering") == line.npos) continue;
    const std::uintptr_t begin = std::stoull(line, nullptr, 16);
    const std::uintptr_t end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    std::vector<unsigned char> in_memory((end - begin) / 4096);
    if (::mincore(reinterpret_cast<void*>(begin), end - begin, in_memory.data()) != 0) return 0;
    for (const unsigned char page : in_memory) pages += page & 1;
  }
  return pages;
}

constexpr std::size_t kBoardBytes = (sizeof(Board) + 4095) / 4096 * 4096;

TEST(Shm, MemoryIsProportionalToTheLinksUsed) {
  EXPECT_EQ(run_threads(4,
                        [](TestRendezvous& rendezvous) -> std::string {
                          auto connected = connect_transport(rendezvous, small_links());
                          TR_MUST_OK(connected.status());
                          Transport& transport = *connected.value();
                          TR_MUST(transport.resident_bytes() == kBoardBytes);
                          TR_MUST(transport.mapped_bytes() >
                                  4 * (4 * kPairChannels * 16 + 4 * 8 + 32) * 1024);
                          TR_MUST_EQ(rendezvous.barrier(), "");
                          if (rendezvous.rank() == 0)
                            TR_MUST(resident_pages_by_kernel() * 4096 == 4 * kBoardBytes);
                          TR_MUST_EQ(rendezvous.barrier(), "");
                          // A ring: one link to the next rank. Its data, and at most two pages of
                          // control lines.
                          const int me = rendezvous.rank();
                          const LinkId out{LinkId::Kind::kPair, 0, me, (me + 1) % 4};
                          const LinkId in{LinkId::Kind::kPair, 0, (me + 3) % 4, me};
                          TR_MUST_OK(transport.tx(out).status());
                          TR_MUST_OK(transport.rx(in).status());
                          const std::size_t grown = transport.resident_bytes() - kBoardBytes;
                          TR_MUST(grown >= 16 * 1024);
                          TR_MUST(grown <= 16 * 1024 + 2 * 4096);
                          TR_MUST_OK(transport.tx(out).status());  // no more the second time
                          TR_MUST(transport.resident_bytes() == grown + kBoardBytes);
                          auto all =
                              rendezvous.all_gather(std::to_string(transport.resident_bytes()));
                          TR_MUST_OK(all.status());
                          std::size_t sum = 0;
                          for (const std::string& bytes : all.value()) sum += std::stoull(bytes);
                          if (me == 0) TR_MUST(resident_pages_by_kernel() * 4096 == sum);
                          return rendezvous.barrier();
                        }),
            "");
}

TEST(Shm, DescribesItsPeers) {
  EXPECT_EQ(run_processes(
                3,
                [](TestRendezvous& rendezvous) -> std::string {
                  auto connected = connect_transport(rendezvous, small_links());
                  TR_MUST_OK(connected.status());
                  auto pids = rendezvous.all_gather(std::to_string(::getpid()));
                  TR_MUST_OK(pids.status());
                  const std::string memfd =
                      "shared memory: its segment maps (memfd), process " + pids.value()[0];
                  if (rendezvous.rank() == 0)
                    TR_MUST_EQ(connected.value()->describe(0), "shared memory: itself");
                  if (rendezvous.rank() == 1)
                    TR_MUST_EQ(connected.value()->describe(0),
                               "shared memory: a thread of this process");
                  if (rendezvous.rank() == 2) TR_MUST_EQ(connected.value()->describe(0), memfd);
                  return rendezvous.barrier();
                },
                2),
            "");
}

// Every rank gets the same error; `expected` is part of it.
std::string all_fail(const std::function<TransportOptions(int rank)>& options, Code code,
                     const std::string& expected) {
  return run_processes(3, [&](TestRendezvous& rendezvous) -> std::string {
    auto connected = connect_transport(rendezvous, options(rendezvous.rank()));
    TR_MUST(!connected.ok());
    TR_MUST(connected.status().code() == code);
    if (connected.status().message().find(expected) == std::string::npos)
      return connected.status().message();
    return "";
  });
}

TEST(Shm, DifferentLinkSizesAreNamed) {
  EXPECT_EQ(all_fail(
                [](int rank) {
                  TransportOptions options = small_links();
                  if (rank == 1) options.cast_bytes = 64 * 1024;
                  return options;
                },
                Code::kInvalidArgument, "rank 1 asks for links of 65536 bytes, rank 0 for 32768"),
            "");
}

TEST(Shm, ABadSizeOfOneRankIsAnErrorOfAll) {
  EXPECT_EQ(all_fail(
                [](int rank) {
                  TransportOptions options = small_links();
                  if (rank == 1) options.link_bytes = 0;
                  return options;
                },
                Code::kInvalidArgument, "rank 1: a link of 0 bytes"),
            "");
}

}  // namespace
}  // namespace treering::test
