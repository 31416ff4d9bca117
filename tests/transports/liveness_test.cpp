// Who ended, who failed, who left: what check_peers() says, and what fork() does not disturb.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>

#include "tests/transports/ranks.hpp"
#include "transports/registry.hpp"

namespace treering::test {
namespace {

using std::chrono::milliseconds;

TransportOptions small_links() {
  TransportOptions options;
  options.link_bytes = options.cast_bytes = options.sendrecv_bytes = 8192;
  options.timeout_ms = 5000;
  return options;
}

// The first error of check_peers(). The end of a process is known at once; the limit is for busy
// machines.
Status wait_for_error(Transport& transport) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < limit) {
    if (Status status = transport.check_peers(); !status.ok()) return status;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return {};
}

// "1234": the process of `rank`, told by itself.
Result<std::string> process_of(TestRendezvous& rendezvous, int rank) {
  TR_ASSIGN_OR_RETURN(const auto pids, rendezvous.all_gather(std::to_string(::getpid())));
  return pids[static_cast<std::size_t>(rank)];
}

TEST(Liveness, AKilledProcessIsNamedThoughItIsAZombie) {
  SurvivorBarrier survivors(3);
  EXPECT_EQ(run_processes(4,
                          [&](TestRendezvous& rendezvous) -> std::string {
                            auto connected = connect_transport(rendezvous, small_links());
                            TR_MUST_OK(connected.status());
                            TR_MUST_OK(connected.value()->check_peers());
                            auto victim = process_of(rendezvous, 2);
                            TR_MUST_OK(victim.status());
                            if (rendezvous.rank() == 2) ::raise(SIGKILL);
                            const Status status = wait_for_error(*connected.value());
                            TR_MUST_EQ(status.message(),
                                       "rank 2 (process " + victim.value() + ") ended");
                            TR_MUST(status.code() == Code::kRemote);
                            TR_MUST(connected.value()->has_ended(2));
                            TR_MUST(!connected.value()->has_ended(rendezvous.rank() == 0 ? 1 : 0));
                            // It is said again, not once only.
                            TR_MUST(connected.value()->check_peers().code() == Code::kRemote);
                            TR_MUST(survivors.wait());  // nobody else ends before all have looked
                            return "";
                          },
                          1, {2}),
            "");
}

TEST(Liveness, AllRanksOfAKilledProcessAreNamed) {
  SurvivorBarrier survivors(3);
  EXPECT_EQ(run_processes(5,
                          [&](TestRendezvous& rendezvous) -> std::string {
                            auto connected = connect_transport(rendezvous, small_links());
                            TR_MUST_OK(connected.status());
                            auto victim = process_of(rendezvous, 3);
                            TR_MUST_OK(victim.status());
                            if (rendezvous.rank() == 3) ::raise(SIGKILL);
                            if (rendezvous.rank() == 2)
                              std::this_thread::sleep_for(std::chrono::seconds(60));
                            TR_MUST_EQ(wait_for_error(*connected.value()).message(),
                                       "rank 2 (process " + victim.value() + "), rank 3 (process " +
                                           victim.value() + ") ended");
                            TR_MUST(survivors.wait());
                            return "";
                          },
                          2, {1}),
            "");
}

TEST(Liveness, ARankThatFinalizedMayEnd) {
  EXPECT_EQ(run_processes(
                2,
                [](TestRendezvous& rendezvous) -> std::string {
                  auto connected = connect_transport(rendezvous, small_links());
                  TR_MUST_OK(connected.status());
                  Transport& transport = *connected.value();
                  TR_MUST(transport.board(rendezvous.rank()).pid.load(std::memory_order_relaxed) ==
                          ::getpid());
                  TR_MUST(!transport.has_ended(1));
                  TR_MUST_EQ(rendezvous.barrier(), "");
                  if (rendezvous.rank() == 1) {
                    transport.board(1).state.store(RankState::kFinalized,
                                                   std::memory_order_release);
                    return "";
                  }
                  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
                  while (!transport.has_ended(1)) TR_MUST(std::chrono::steady_clock::now() < limit);
                  for (int i = 0; i < 50; ++i) {  // while it ends, and after
                    TR_MUST_OK(transport.check_peers());
                    std::this_thread::sleep_for(milliseconds(2));
                  }
                  return "";
                }),
            "");
}

// Rank 1 puts `state` on its board; what rank 0 is told.
std::string report_of_board(RankState state, Code code, const char* cause, Code expected_code,
                            const std::string& expected_text) {
  return run_threads(3, [&](TestRendezvous& rendezvous) -> std::string {
    auto connected = connect_transport(rendezvous, small_links());
    TR_MUST_OK(connected.status());
    TR_MUST_EQ(rendezvous.barrier(), "");
    if (rendezvous.rank() == 1) {
      Board& board = connected.value()->board(1);
      board.code.store(static_cast<std::uint32_t>(code), std::memory_order_relaxed);
      std::strcpy(board.cause, cause);
      board.state.store(state, std::memory_order_release);
      TR_MUST_OK(connected.value()->check_peers());  // its own state is no news to it
    } else {
      const Status status = wait_for_error(*connected.value());
      TR_MUST_EQ(status.message(), expected_text);
      TR_MUST(status.code() == expected_code);
      TR_MUST(!connected.value()->has_ended(1));
    }
    return rendezvous.barrier();
  });
}

TEST(Liveness, AnAbortIsNamed) {
  EXPECT_EQ(report_of_board(RankState::kAborted, Code::kOk, "", Code::kAborted,
                            "rank 1 aborted the communicator"),
            "");
}
TEST(Liveness, AFailureComesWithItsCodeAndCause) {
  EXPECT_EQ(report_of_board(RankState::kFailed, Code::kMismatch, "rank 2 did it", Code::kMismatch,
                            "rank 1 failed: rank 2 did it"),
            "");
  EXPECT_EQ(report_of_board(RankState::kFailed, Code::kTimeout, "waited", Code::kTimeout,
                            "rank 1 failed: waited"),
            "");
}

TEST(Liveness, TheFirstCauseIsNamedNotItsConsequences) {
  EXPECT_EQ(run_processes(
                3,
                [](TestRendezvous& rendezvous) -> std::string {
                  auto connected = connect_transport(rendezvous, small_links());
                  TR_MUST_OK(connected.status());
                  Transport& transport = *connected.value();
                  auto victim = process_of(rendezvous, 2);
                  TR_MUST_OK(victim.status());
                  if (rendezvous.rank() == 2) ::raise(SIGKILL);
                  const std::string expected = "rank 2 (process " + victim.value() + ") ended";
                  if (rendezvous.rank() == 1) {  // fails because of rank 2, and ends
                    TR_MUST_EQ(wait_for_error(transport).message(), expected);
                    transport.board(1).state.store(RankState::kFailed, std::memory_order_release);
                    return "";
                  }
                  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
                  while (!transport.has_ended(1) || !transport.has_ended(2)) {
                    TR_MUST(std::chrono::steady_clock::now() < limit);
                    std::this_thread::sleep_for(milliseconds(1));
                  }
                  TR_MUST_EQ(transport.check_peers().message(), expected);
                  return "";
                },
                1, {2}),
            "");
}

// Across pid namespaces a process may be invisible; the connection tells then.
TEST(Liveness, AProcessInAnotherPidNamespaceIsWatched) {
  Places places(2);
  const pid_t holder = ::fork();
  if (holder == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(77);
    const pid_t inner = ::fork();
    if (inner == 0) {
      TestRendezvous rendezvous(places, 1);
      auto connected = connect_transport(rendezvous, small_links());
      if (!connected.ok()) ::_exit(1);
      (void)rendezvous.barrier();
      // Cannot see rank 0's process either, and must notice that it ended.
      const Status status = wait_for_error(*connected.value());
      if (status.message() != "rank 0 ended") ::_exit(2);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(inner, &status, 0);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
  }
  const pid_t other = ::fork();
  if (other == 0) {
    TestRendezvous rendezvous(places, 0, 3000);
    auto connected = connect_transport(rendezvous, small_links());
    if (!connected.ok()) ::_exit(1);
    (void)rendezvous.barrier();
    ::_exit(connected.value()->check_peers().ok() ? 0 : 2);
  }
  int holder_status = 0;
  int other_status = 0;
  ::waitpid(holder, &holder_status, 0);
  ::waitpid(other, &other_status, 0);
  if (WIFEXITED(holder_status) && WEXITSTATUS(holder_status) == 77)
    GTEST_SKIP() << "this user may not create pid namespaces";
  EXPECT_TRUE(WIFEXITED(holder_status));
  EXPECT_EQ(WEXITSTATUS(holder_status), 0);
  EXPECT_EQ(other_status, 0);
}

// A rendezvous whose rank dies in the middle of connecting.
class DyingRendezvous : public TestRendezvous {
 public:
  DyingRendezvous(Places& places, int rank, int rounds)
      : TestRendezvous(places, rank, 1500), rounds_(rounds) {}
  Result<std::vector<std::string>> all_gather(const std::string& blob) override {
    auto all = TestRendezvous::all_gather(blob);
    if (--rounds_ == 0) ::raise(SIGKILL);
    return all;
  }

 private:
  int rounds_;
};

TEST(Liveness, ARankThatDiesWhileConnectingIsNamed) {
  Places places(3);
  std::vector<pid_t> children;
  for (int r = 0; r < 3; ++r) {
    const pid_t child = ::fork();
    if (child == 0) {
      DyingRendezvous rendezvous(places, r, r == 1 ? 1 : 100);
      if (r != 1) std::this_thread::sleep_for(milliseconds(50));
      const auto connected = connect_transport(rendezvous, small_links());
      const std::string message = connected.status().message();
      ::_exit(!connected.ok() && message.find("rank 1") != std::string::npos ? 0 : 1);
    }
    children.push_back(child);
  }
  const auto start = std::chrono::steady_clock::now();
  for (int r = 0; r < 3; ++r) {
    int status = 0;
    ::waitpid(children[static_cast<std::size_t>(r)], &status, 0);
    if (r != 1) {
      EXPECT_EQ(status, 0) << "rank " << r;
    }
  }
  // The limit of the rendezvous, not the one of the hand-over (5 s).
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
}

TEST(Liveness, AForkedChildDoesNoHarmAndTakesNone) {
  EXPECT_EQ(run_processes(
                2,
                [](TestRendezvous& rendezvous) -> std::string {
                  auto connected = connect_transport(rendezvous, small_links());
                  TR_MUST_OK(connected.status());
                  Transport& transport = *connected.value();
                  const int me = rendezvous.rank();
                  FifoTx& tx = *transport.tx({LinkId::Kind::kPair, 0, me, 1 - me}).value();
                  FifoRx& rx = *transport.rx({LinkId::Kind::kPair, 0, 1 - me, me}).value();
                  TR_MUST_EQ(rendezvous.barrier(), "");
                  const pid_t child = ::fork();
                  if (child == 0) {
                    const std::vector<char> memory(1 << 20, 'x');
                    std::ifstream file("/proc/self/stat");
                    std::string line;
                    std::getline(file, line);
                    connected.value().reset();  // as a destructor at exit would
                    ::_exit(line.empty() || memory[99] != 'x' ? 1 : 0);
                  }
                  for (std::uint64_t m = 0; m < 100; ++m) {
                    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
                    while (!tx_ready(tx, 8, 64)) TR_MUST(std::chrono::steady_clock::now() < limit);
                    tx_post(tx, m);
                    while (!rx_ready(rx)) {
                      TR_MUST(std::chrono::steady_clock::now() < limit);
                      ::sched_yield();
                    }
                    TR_MUST(rx_line(rx).signature == m);
                    rx_release(rx);
                  }
                  int status = -1;
                  TR_MUST(::waitpid(child, &status, 0) == child);
                  TR_MUST(status == 0);
                  TR_MUST_OK(transport.check_peers());
                  return rendezvous.barrier();
                }),
            "");
}

}  // namespace
}  // namespace treering::test
