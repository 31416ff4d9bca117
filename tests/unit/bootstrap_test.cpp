// The rendezvous by unique id and by a launcher's environment.
#include "bootstrap/bootstrap.hpp"

#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bootstrap/store.hpp"
#include "tests/unit/bootstrap_util.hpp"

// Several tests fork while the thread of a store is there, and start one in the child.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace treering {
namespace {

// The error of joining, or of the first exchange.
Status join_and_gather(const IdBytes& id, int size, int rank, const Config& config) {
  const auto joined = join_root(id, size, rank, config);
  if (!joined.ok()) return joined.status();
  const auto blobs = joined.value()->all_gather("x");
  return blobs.ok() ? Status() : blobs.status();
}

IdBytes new_root() {
  const auto id = start_root(Config{});
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.ok() ? id.value() : IdBytes{};
}

std::size_t entries(const char* directory) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(directory), {}));
}

class RendezvousOf : public testing::TestWithParam<int> {};

TEST_P(RendezvousOf, EveryRankGetsEveryBlob) {
  const int size = GetParam();
  const IdBytes id = new_root();
  on_threads(first_ranks(size), [&](int rank) {
    auto joined = join_root(id, size, rank, quick_config());
    ASSERT_TRUE(joined.ok()) << joined.status().message();
    EXPECT_EQ(joined.value()->rank(), rank);
    EXPECT_EQ(joined.value()->size(), size);
    EXPECT_TRUE(exchanges_well(*joined.value(), 4));
  });
}
INSTANTIATE_TEST_SUITE_P(Sizes, RendezvousOf, testing::Values(1, 2, 3, 8, 33, 64));

TEST(Rendezvous, CarriesTheLongestBlobAndRefusesALongerOne) {
  const IdBytes id = new_root();
  on_threads({0, 1, 2}, [&](int rank) {
    auto joined = join_root(id, 3, rank, quick_config());
    ASSERT_TRUE(joined.ok());
    EXPECT_EQ(joined.value()->all_gather(std::string(kMaxBlobBytes + 1, 'x')).status().code(),
              Code::kInvalidArgument);
    const auto blobs =
        joined.value()->all_gather(std::string(kMaxBlobBytes, static_cast<char>('a' + rank)));
    ASSERT_TRUE(blobs.ok()) << blobs.status().message();
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(blobs.value()[static_cast<std::size_t>(r)],
                std::string(kMaxBlobBytes, static_cast<char>('a' + r)));
    }
  });
}

TEST(Rendezvous, RootsEndWithTheirCommunicators) {
  const std::size_t fds = entries("/proc/self/fd");
  const std::size_t threads = entries("/proc/self/task");
  for (int i = 0; i < 100; ++i) {
    const IdBytes id = new_root();
    on_threads({0, 1},
               [&](int rank) { EXPECT_TRUE(join_and_gather(id, 2, rank, quick_config()).ok()); });
  }
  const Deadline deadline = Deadline::after_ms(5000);
  while (!deadline.expired() &&
         (entries("/proc/self/fd") > fds || entries("/proc/self/task") > threads)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // Fewer: roots of earlier tests have ended meanwhile.
  EXPECT_LE(entries("/proc/self/fd"), fds);
  EXPECT_LE(entries("/proc/self/task"), threads);
}

TEST(Rendezvous, MissingRanksAreNamedAtTheDeadline) {
  const IdBytes id = new_root();
  const auto begin = Clock::now();
  on_threads({0, 1, 3, 4}, [&](int rank) {
    const Status status = join_and_gather(id, 8, rank, quick_config(300));
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_CONTAINS(status.message(), "ranks 2, 5-7 of 8 have not joined within 0.3 s");
    EXPECT_CONTAINS(status.message(), "TR_INIT_TIMEOUT_S");
  });
  EXPECT_LT(seconds_since(begin), 3);
}

TEST(Rendezvous, ARankThatJoinedButDoesNotComeIsNamed) {
  const IdBytes id = new_root();
  auto idle = join_root(id, 3, 2, quick_config());
  ASSERT_TRUE(idle.ok());
  on_threads({0, 1}, [&](int rank) {
    const Status status = join_and_gather(id, 3, rank, quick_config(300));
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_CONTAINS(status.message(), "rank 2 of 3 has joined but not come to exchange 1");
  });
  // The failure reaches the late rank at once.
  const auto begin = Clock::now();
  EXPECT_EQ(idle.value()->all_gather("x").status().code(), Code::kTimeout);
  EXPECT_LT(seconds_since(begin), 1);
}

TEST(Rendezvous, ALongWaitIsReportedOnce) {
  const IdBytes id = new_root();
  Config config = quick_config(500);
  config.warn_ms = 300;
  testing::internal::CaptureStderr();
  EXPECT_EQ(join_and_gather(id, 2, 0, config).code(), Code::kTimeout);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "treering rank 0 warning: waits for the set-up of a communicator: rank 1 of 2 has not "
            "joined so far\n");
}

TEST(Rendezvous, TwoCallersWithOneRankFailAll) {
  const IdBytes id = new_root();
  on_threads({0, 1, 1}, [&](int rank) {
    const Status status = join_and_gather(id, 3, rank, quick_config());
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_CONTAINS(status.message(), "two callers joined as rank 1 of 3");
  });
}

TEST(Rendezvous, DifferentSizesFailAll) {
  const IdBytes id = new_root();
  on_threads({0, 1}, [&](int rank) {
    const Status status = join_and_gather(id, rank == 0 ? 2 : 3, rank, quick_config());
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_CONTAINS(status.message(), "disagree about the size");
    EXPECT_CONTAINS(status.message(), "rank 0 says 2");
    EXPECT_CONTAINS(status.message(), "rank 1 says 3");
  });
}

TEST(Rendezvous, ARankThatDiesIsNamed) {
  const IdBytes id = new_root();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto joined = join_root(id, 3, 2, quick_config());
    ::_exit(joined.ok() ? 0 : 1);  // without a goodbye
  }
  on_threads({0, 1}, [&](int rank) {
    const Status status = join_and_gather(id, 3, rank, quick_config());
    EXPECT_EQ(status.code(), Code::kRemote);
    EXPECT_CONTAINS(status.message(), "rank 2 of 3 died");
  });
  int exit_status = 0;
  ::waitpid(child, &exit_status, 0);
  EXPECT_EQ(exit_status, 0);
}

TEST(Rendezvous, ARankThatLeavesEarlyIsNamed) {
  const IdBytes id = new_root();
  auto first = join_root(id, 2, 0, quick_config());
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(join_root(id, 2, 1, quick_config()).ok());  // and leaves
  const Status status = first.value()->all_gather("x").status();
  EXPECT_EQ(status.code(), Code::kRemote);
  EXPECT_CONTAINS(status.message(), "rank 1 of 2 left before");
}

TEST(Rendezvous, AnIdServesOneCommunicator) {
  const IdBytes id = new_root();
  auto first = join_root(id, 2, 0, quick_config());
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(join_root(id, 2, 1, quick_config()).ok());
  Status again;
  const Deadline deadline = Deadline::after_ms(5000);
  do {  // the goodbye may still be on its way: then rank 1 counts as there
    again = join_root(id, 2, 1, quick_config()).status();
  } while (again.ok() && !deadline.expired());
  EXPECT_TRUE(again.code() == Code::kInvalidUsage || again.code() == Code::kInvalidArgument)
      << again.message();
}

TEST(Rendezvous, TheDeathOfTheRootIsSeenAtOnce) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t root = ::fork();
  if (root == 0) {
    const auto id = start_root(Config{});
    (void)!::write(pipe_fds[1], id.value().data(), id.value().size());
    ::pause();
    ::_exit(0);
  }
  ::close(pipe_fds[1]);
  IdBytes id{};
  ASSERT_EQ(::read(pipe_fds[0], id.data(), id.size()), static_cast<ssize_t>(id.size()));
  auto joined = join_root(id, 2, 0, quick_config());
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::kill(root, SIGKILL);
  });
  const auto begin = Clock::now();
  const Status status = joined.value()->all_gather("x").status();
  EXPECT_EQ(status.code(), Code::kRemote);
  EXPECT_CONTAINS(status.message(), "process " + std::to_string(root));
  EXPECT_LT(seconds_since(begin), 2);
  killer.join();
  ::waitpid(root, nullptr, 0);
  const Status gone = join_root(id, 2, 1, quick_config()).status();
  EXPECT_EQ(gone.code(), Code::kRemote);
  EXPECT_CONTAINS(gone.message(), "has ended");
  ::close(pipe_fds[0]);
}

TEST(Rendezvous, AForkedChildKeepsNothingAlive) {
  // The child has copies of the listening socket and of both ends of every connection.
  const IdBytes id = new_root();
  auto first = join_root(id, 2, 0, quick_config());
  auto second = join_root(id, 2, 1, quick_config());
  ASSERT_TRUE(first.ok() && second.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  std::thread other([&] { EXPECT_TRUE(exchanges_well(*second.value(), 2)); });
  EXPECT_TRUE(exchanges_well(*first.value(), 2));
  other.join();
  first.value().reset();
  second.value().reset();
  const Deadline deadline = Deadline::after_ms(5000);
  Status again;
  do {
    again = join_root(id, 2, 0, quick_config(1000)).status();
  } while (again.message().find("nobody listens") == std::string::npos && !deadline.expired());
  EXPECT_CONTAINS(again.message(), "nobody listens");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(UniqueId, AnyChangedByteIsNoticed) {
  const IdBytes id = new_root();
  for (std::size_t i = 0; i < id.size(); ++i) {
    IdBytes damaged = id;
    damaged[i] ^= static_cast<unsigned char>(1u << (i % 8));
    EXPECT_EQ(join_root(damaged, 1, 0, quick_config()).status().code(), Code::kInvalidArgument)
        << i;
  }
  EXPECT_EQ(join_root(IdBytes{}, 1, 0, quick_config()).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(join_and_gather(id, 1, 0, quick_config()).ok());
}

TEST(UniqueId, AbsurdSizesAndRanksAreRefused) {
  const IdBytes id = new_root();
  const struct {
    int size, rank;
  } kBad[] = {{0, 0}, {-1, 0}, {2, 2}, {2, -1}, {1 << 30, 0}, {INT32_MAX, INT32_MAX - 1}};
  for (const auto& bad : kBad) {
    EXPECT_EQ(join_root(id, bad.size, bad.rank, quick_config()).status().code(),
              Code::kInvalidArgument)
        << bad.rank << " of " << bad.size;
  }
  EXPECT_TRUE(join_and_gather(id, 1, 0, quick_config()).ok());
}

TEST(UniqueId, CarriesItsAddressesAndDropsTheLeastWanted) {
  UniqueId id;
  id.port = 4711;
  id.root_pid = 12;
  id.key = random_key().value();
  const auto add = [&](const std::string& ip) {
    id.addresses.emplace_back();
    ASSERT_TRUE(parse_address(ip, id.addresses.back()));
  };
  const auto text = [](const UniqueId& of) {
    std::string all;
    for (const NetAddress& a : of.addresses) all += to_string(a, of.port) + " ";
    return all;
  };
  for (const char* ip : {"10.0.0.1", "fd00::1", "fe80::1", "192.168.1.1", "127.0.0.1"}) add(ip);
  auto parsed = parse_unique_id(to_bytes(id));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(text(parsed.value()), "10.0.0.1:4711 [fd00::1]:4711 192.168.1.1:4711 127.0.0.1:4711 ");
  EXPECT_EQ(parsed.value().key, id.key);
  EXPECT_EQ(parsed.value().secret(), id.secret());
  EXPECT_EQ(parsed.value().root_pid, 12u);
  id.addresses.clear();
  for (int i = 1; i < 30; ++i) add("fd00::" + std::to_string(i));
  add("127.0.0.1");
  EXPECT_EQ(text(parse_unique_id(to_bytes(id)).value()),
            "[fd00::1]:4711 [fd00::2]:4711 [fd00::3]:4711 [fd00::4]:4711 127.0.0.1:4711 ");
}

TEST(JoinEnv, SeveralTimesInARow) {
  const std::string job = "several " + std::to_string(::getpid());
  on_processes(4, [&](int rank) {
    LaunchEnv env = job_of(4, rank, "");
    env.job = job;
    for (int i = 0; i < 20; ++i) {
      auto joined = join_env(env, quick_config());
      if (!joined.ok()) ADD_FAILURE() << joined.status().message();
      if (!joined.ok() || !exchanges_well(*joined.value(), 2)) return false;
    }
    return true;
  });
}

TEST(JoinEnv, OneProgramAfterTheOtherAndALateRankZero) {
  // Three programs in a row, as a script would run them: each begins to count anew.
  const std::string job = "programs " + std::to_string(::getpid());
  on_processes(3, [&](int rank) {
    for (int program = 0; program < 3; ++program) {
      const pid_t child = ::fork();
      if (child == 0) {
        LaunchEnv env = job_of(3, rank, "");
        env.job = job;
        if (rank == 0) ::usleep(100'000);
        auto joined = join_env(env, quick_config());
        if (!joined.ok()) ADD_FAILURE() << joined.status().message();
        ::_exit(joined.ok() && exchanges_well(*joined.value(), 2) ? 0 : 1);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      if (status != 0) return false;
    }
    return true;
  });
}

TEST(JoinEnv, WithAFixedPortAndKey) {
  const std::uint16_t port = free_port();
  on_processes(2, [&](int rank) {
    Config config = quick_config();
    config.store_port = port;
    config.job_key = "00112233445566778899aabbccddeeff";
    auto joined = join_env(job_of(2, rank, "differs by rank"), config);
    if (!joined.ok()) ADD_FAILURE() << joined.status().message();
    return joined.ok() && exchanges_well(*joined.value(), 2);
  });
}

// Listens on `port` and resets all connections, for `ms`.
void reset_all(std::uint16_t port, int ms) {
  const UniqueFd fd = listen_on(port, SOCK_NONBLOCK);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (std::chrono::steady_clock::now() < end) {
    const UniqueFd guest(::accept(fd.get(), nullptr, nullptr));
    const linger reset{1, 0};
    if (guest.valid()) ::setsockopt(guest.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
}

// As the store of the program before this one does when it ends.
TEST(JoinEnv, AListenerThatResetsConnectionsIsWaitedFor) {
  const std::uint16_t port = free_port();
  on_processes(6, [&](int rank) {
    Config config = quick_config();
    config.store_port = port;
    config.job_key = "00112233445566778899aabbccddeeff";
    if (rank == 0) reset_all(port, 300);
    auto joined = join_env(job_of(6, rank, "differs by rank"), config);
    if (!joined.ok()) ADD_FAILURE() << joined.status().message();
    return joined.ok() && exchanges_well(*joined.value(), 2);
  });
}

TEST(JoinEnv, AMissingRankZeroIsNamedAtTheDeadline) {
  const Status status = join_env(job_of(2, 1, "nobody "), quick_config(200)).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_CONTAINS(status.message(), "rank 0 (test)");
  EXPECT_CONTAINS(status.message(), "nobody listens");
}

TEST(JoinEnv, OneRankNeedsNobody) {
  const std::size_t fds = entries("/proc/self/fd");
  auto joined = join_env(LaunchEnv{}, quick_config());
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(joined.value()->all_gather("me").value(), std::vector<std::string>{"me"});
  EXPECT_EQ(entries("/proc/self/fd"), fds);
}

}  // namespace
}  // namespace treering
