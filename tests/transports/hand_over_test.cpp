// The hand-over alone, with strangers at the door.
#include "transports/hand_over.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "transports/segment.hpp"

namespace treering {
namespace {

constexpr std::size_t kBytes = 8192;

// A rank of the hand-over. Here all are threads of one process, which the hand-over does not mind.
struct Party {
  HandOver hand_over;
  UniqueFd memory_file;
};
Party make_party() {
  return {std::move(HandOver::open()).value(), std::move(create_memory_file(kBytes)).value()};
}

// All neighbours' segments, by the order of arrival.
struct Taken {
  std::vector<std::shared_ptr<Segment>> segments;
  Status operator()(std::size_t, UniqueFd file) {
    TR_ASSIGN_OR_RETURN(segments.emplace_back(), Segment::map(file.get(), kBytes));
    return {};
  }
};

// Connects to a party's socket as anybody could who reads the list of sockets.
UniqueFd call(const Doorbell& doorbell) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length =
      std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "treering-%016llx%016llx",
                    static_cast<unsigned long long>(doorbell.name[0]),
                    static_cast<unsigned long long>(doorbell.name[1]));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                            static_cast<std::size_t>(length));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  return socket;
}

Neighbour neighbour(int rank, const Party& party) {
  return {rank, party.hand_over.doorbell(), false};
}

TEST(HandOver, StrangersCostNobodyAPlace) {
  Party a = make_party();
  Party b = make_party();
  const UniqueFd silent = call(a.hand_over.doorbell());
  {
    const UniqueFd gone = call(a.hand_over.doorbell());
    const UniqueFd garbage = call(a.hand_over.doorbell());
    const std::string request = "GET / HTTP/1.1\r\n\r\n";
    ASSERT_GT(::send(garbage.get(), request.data(), request.size(), 0), 0);
    // Right shape, wrong token, no descriptor.
    const UniqueFd forger = call(b.hand_over.doorbell());
    char packet[32] = "treering";
    ASSERT_EQ(::send(forger.get(), packet, sizeof(packet), 0), 32);
  }
  Taken by_a, by_b;
  auto at_b = std::async(std::launch::async, [&] {
    return b.hand_over.run(1, b.memory_file.get(), {neighbour(0, a)}, std::ref(by_b), 5000);
  });
  auto at_a = a.hand_over.run(0, a.memory_file.get(), {neighbour(1, b)}, std::ref(by_a), 5000);
  auto from_b = at_b.get();
  ASSERT_TRUE(at_a.ok()) << at_a.status().message();
  ASSERT_TRUE(from_b.ok()) << from_b.status().message();
  EXPECT_EQ(at_a.value()[0].pid, ::getpid());
  ASSERT_EQ(by_a.segments.size(), 1u);
  ASSERT_EQ(by_b.segments.size(), 1u);
  EXPECT_EQ(by_a.segments[0]->bytes(), kBytes);
  EXPECT_NE(by_a.segments[0]->base(), by_b.segments[0]->base());
}

TEST(HandOver, TheDeadlineNamesWhoIsMissing) {
  Party a = make_party();
  const Party silent = make_party();
  const auto start = std::chrono::steady_clock::now();
  const auto result = a.hand_over.run(0, a.memory_file.get(), {neighbour(1, silent)}, Taken{}, 100);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_EQ(result.status().code(), Code::kTimeout);
  EXPECT_EQ(result.status().message(),
            "the hand-over of shared memory took longer than 100 ms: nothing came from rank 1");
}

// tr_comm_abort, while a neighbour neither comes nor goes.
TEST(HandOver, AnAbortEndsItSoon) {
  Party a = make_party();
  const Party silent = make_party();
  std::atomic<int> asked{0};
  const auto start = std::chrono::steady_clock::now();
  const auto result = a.hand_over.run(0, a.memory_file.get(), {neighbour(1, silent)}, Taken{},
                                      60'000, [&asked] { return asked.fetch_add(1) == 3; });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
  EXPECT_EQ(result.status().code(), Code::kAborted);
  EXPECT_EQ(asked.load(), 4);
}

TEST(HandOver, ANeighbourThatIsGoneIsNamedAtOnce) {
  Party a = make_party();
  Neighbour gone;
  {
    const Party b = make_party();
    gone = neighbour(1, b);
  }
  const auto start = std::chrono::steady_clock::now();
  const auto result = a.hand_over.run(0, a.memory_file.get(), {gone}, Taken{}, 20000);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_EQ(result.status().message(),
            "rank 1 does not listen for shared memory any more; has it ended?");
}

TEST(HandOver, ANeighbourThatGivesUpIsNamedAtOnce) {
  Party a = make_party();
  auto b = std::make_unique<Party>(make_party());
  const Neighbour quitter = neighbour(1, *b);
  auto quits = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    b.reset();  // a's gift is in its backlog, unread
  });
  const auto start = std::chrono::steady_clock::now();
  const auto result = a.hand_over.run(0, a.memory_file.get(), {quitter}, Taken{}, 20000);
  quits.get();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_EQ(result.status().message(),
            "rank 1 ended or gave up while shared memory was handed over");
}

TEST(HandOver, AMemoryFileOfAnotherSizeIsRefused) {
  Party a = make_party();
  Party b = make_party();
  b.memory_file = std::move(create_memory_file(2 * kBytes)).value();
  auto at_b = std::async(std::launch::async, [&] {
    return b.hand_over.run(1, b.memory_file.get(), {neighbour(0, a)}, Taken{}, 5000);
  });
  const auto at_a = a.hand_over.run(0, a.memory_file.get(), {neighbour(1, b)}, Taken{}, 5000);
  EXPECT_TRUE(at_b.get().ok());
  EXPECT_EQ(at_a.status().message(),
            "while mapping the memory of rank 1: the memory file has 16384 bytes where its owner "
            "said 8192");
}

TEST(HandOver, AMemoryFileThatCanShrinkIsRefused) {
  Party a = make_party();
  Party b = make_party();
  b.memory_file.reset(::memfd_create("unsealed", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(b.memory_file.get(), kBytes), 0);
  auto at_b = std::async(std::launch::async, [&] {
    return b.hand_over.run(1, b.memory_file.get(), {neighbour(0, a)}, Taken{}, 5000);
  });
  const auto at_a = a.hand_over.run(0, a.memory_file.get(), {neighbour(1, b)}, Taken{}, 5000);
  EXPECT_TRUE(at_b.get().ok());
  EXPECT_EQ(at_a.status().message(),
            "while mapping the memory of rank 1: the memory file is not sealed against shrinking");
}

TEST(HandOver, AHundredRanksMeet) {
  constexpr int kRanks = 100;
  std::vector<Party> parties;
  for (int r = 0; r < kRanks; ++r) parties.push_back(make_party());
  std::vector<std::vector<Neighbour>> neighbours(kRanks);
  for (int r = 0; r < kRanks; ++r)
    for (int q = 0; q < kRanks; ++q)
      if (q != r)
        neighbours[static_cast<std::size_t>(r)].push_back(
            neighbour(q, parties[static_cast<std::size_t>(q)]));
  std::vector<Status> results(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r)
    threads.emplace_back([&, i = static_cast<std::size_t>(r)] {
      results[i] =
          parties[i]
              .hand_over
              .run(static_cast<int>(i), parties[i].memory_file.get(), neighbours[i], Taken{}, 20000)
              .status();
    });
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.message();
}

TEST(Segment, IsMappedOnceAndUnmappedByTheLast) {
  const UniqueFd file = std::move(create_memory_file(kBytes)).value();
  std::shared_ptr<Segment> first = Segment::map(file.get(), kBytes).value();
  std::shared_ptr<Segment> second = Segment::map(file.get(), kBytes).value();
  EXPECT_EQ(first, second);
  const SegmentKey key = first->key();
  first.reset();
  EXPECT_EQ(Segment::find(key), second);
  second.reset();
  EXPECT_EQ(Segment::find(key), nullptr);
}

TEST(Segment, ResidentPagesKeepTheirContent) {
  const UniqueFd file = std::move(create_memory_file(kBytes)).value();
  const std::shared_ptr<Segment> segment = Segment::map(file.get(), kBytes).value();
  std::memset(segment->base(), 0x5a, kBytes);
  EXPECT_TRUE(make_resident(segment->base() + 100, kBytes - 200).ok());
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(segment->base()[i], std::byte{0x5a});
}

}  // namespace
}  // namespace treering
