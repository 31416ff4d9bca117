// A rank's process is killed at any moment: every other rank, whose kernels wait for it, returns an
// error that names it, soon. The parent never touches CUDA, which a forked child could not use.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <sys/time.h>
#include <unistd.h>

#include "cuda/support.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

using Clock = std::chrono::steady_clock;

void die_after_us(long us) {
  ::signal(SIGALRM, [](int) { ::kill(::getpid(), SIGKILL); });
  itimerval t{};
  t.it_value.tv_usec = us + 1;
  ::setitimer(ITIMER_REAL, &t, nullptr);
}

// What is wrong with how a survivor's call failed.
std::string wrong_failure(tr_result_t r, int victim, Clock::time_point start, double most_s) {
  const std::string text = tr_get_last_error();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (seconds > most_s) return "took " + std::to_string(seconds) + " s to fail: " + text;
  if (r != TR_REMOTE_ERROR) return "failed otherwise: " + text;
  if (text.find("rank " + std::to_string(victim)) == std::string::npos)
    return "does not name the dead rank: " + text;
  return {};
}

// Collectives of all protocols until one fails; what was wrong with the failure.
std::string run_until_failure(tr_comm_t comm, int rank, int victim) {
  constexpr std::uint64_t kMost = 90000;
  const DeviceArray<float> a(kMost, 1), b(kMost, 0);
  const UserStream stream;
  for (int i = 0;; ++i) {
    const std::uint64_t count =
        std::array{std::uint64_t{60}, std::uint64_t{9000}, kMost}[i / 3 % 3];
    const Clock::time_point start = Clock::now();
    tr_result_t r = TR_SUCCESS;
    switch (i % 3) {
      case 0:
        r = tr_all_reduce(a.get(), b.get(), count, TR_FLOAT32, TR_SUM, comm, nullptr);
        break;
      case 1:
        r = tr_broadcast(a.get(), b.get(), count, TR_FLOAT32, i % 2, comm, nullptr);
        break;
      default:
        r = tr_all_reduce(a.get(), b.get(), count, TR_FLOAT32, TR_MAX, comm, nullptr);
        break;
    }
    if (r == TR_SUCCESS) continue;
    if (rank == victim) return {};
    if (const std::string wrong = wrong_failure(r, victim, start, 4); !wrong.empty()) return wrong;
    // A call on a stream fails at once, too.
    if (tr_all_reduce(a.get(), b.get(), 60, TR_FLOAT32, TR_SUM, comm, stream.get()) != r)
      return "the next call did not fail";
    return {};
  }
}

// To the next rank and from the last one at once, with a reduction now and then; on a stream, which
// is then waited for, or without one.
std::string pass_on_until_failure(tr_comm_t comm, int rank, int size, int victim, bool on_stream) {
  constexpr std::uint64_t kMost = 100'000;
  const DeviceArray<float> a(kMost, 1), b(kMost, 0);
  const UserStream stream;
  const tr_stream_t s = on_stream ? stream.get() : nullptr;
  for (int i = 0;; ++i) {
    const std::uint64_t count = i % 2 ? kMost : 60;
    const Clock::time_point start = Clock::now();
    tr_result_t r = tr_group_start();
    if (r == TR_SUCCESS) r = tr_send(a.get(), count, TR_FLOAT32, (rank + 1) % size, comm, s);
    if (r == TR_SUCCESS) r = tr_recv(b.get(), count, TR_FLOAT32, (rank + size - 1) % size, comm, s);
    if (r == TR_SUCCESS) r = tr_group_end();
    if (r == TR_SUCCESS && i % 3 == 2)
      r = tr_all_reduce(a.get(), b.get(), count, TR_FLOAT32, TR_MAX, comm, s);
    if (r == TR_SUCCESS) r = tr_stream_synchronize(s);
    if (r == TR_SUCCESS) continue;
    return rank == victim ? "" : wrong_failure(r, victim, start, 2);
  }
}

// Groups of sums, which are one kernel, until one fails.
std::string run_groups_until_failure(tr_comm_t comm, int rank, int victim) {
  constexpr int kCalls = 6;
  constexpr std::uint64_t kMost = 3000;
  const DeviceArray<float> data(kCalls * kMost, 1);
  for (;;) {
    const Clock::time_point start = Clock::now();
    tr_result_t r = tr_group_start();
    for (int i = 0; i < kCalls && r == TR_SUCCESS; ++i) {
      float* const at = data.get() + static_cast<std::uint64_t>(i) * kMost;
      r = tr_all_reduce(at, at, i % 2 ? kMost : 60, TR_FLOAT32, TR_MAX, comm, nullptr);
    }
    if (r == TR_SUCCESS) r = tr_group_end();
    if (r != TR_SUCCESS) return rank == victim ? "" : wrong_failure(r, victim, start, 2);
  }
}

unsigned a_seed() {
  const unsigned seed = std::getenv("TR_TEST_SEED") != nullptr
                            ? static_cast<unsigned>(std::atoi(std::getenv("TR_TEST_SEED")))
                            : std::random_device{}();
  std::printf("seed %u\n", seed);
  return seed;
}

TEST(Kill, EverySurvivorNamesTheDeadRank) {
  std::mt19937 random(a_seed());
  const Env quiet("TR_LOG", "off");
  for (int round = 0; round < 6; ++round) {
    const int n = 2 + static_cast<int>(random() % 3);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(n));
    const long moment_us = static_cast<long>(random() % 60'000);
    EXPECT_EQ(run_ranks(
                  Mode::kProcesses, n,
                  [&](tr_comm_t comm, int rank, int) -> std::string {
                    if (rank == victim) die_after_us(moment_us);
                    return run_until_failure(comm, rank, victim);
                  },
                  30),
              "rank " + std::to_string(victim) + ": died of signal 9\n")
        << "round " << round << ", n " << n << ", killed after " << moment_us << " us";
  }
}

// Sums from windows to windows until one fails.
std::string sum_windows_until_failure(tr_comm_t comm, int rank, int victim, long moment_us) {
  constexpr std::uint64_t kMost = 90000;
  const DeviceArray<float> a(kMost, 1), b(kMost, 0);
  for (const DeviceArray<float>* array : {&a, &b}) {
    tr_window_t window = nullptr;
    const tr_result_t r = tr_comm_register(comm, array->get(), kMost * sizeof(float), &window);
    if (r != TR_SUCCESS) return failure("tr_comm_register", r);
  }
  if (rank == victim) die_after_us(moment_us);
  for (int i = 0;; ++i) {
    const std::uint64_t count = i % 2 == 0 ? kMost : 9000;
    float* const in = i % 3 == 0 ? b.get() : a.get();
    const Clock::time_point start = Clock::now();
    const tr_result_t r = tr_all_reduce(in, b.get(), count, TR_FLOAT32, TR_MAX, comm, nullptr);
    if (r != TR_SUCCESS) return rank == victim ? "" : wrong_failure(r, victim, start, 4);
  }
}

TEST(Kill, OfARankWhoseMemoryIsInUseToo) {
  std::mt19937 random(a_seed());
  const Env quiet("TR_LOG", "off");
  for (int round = 0; round < 6; ++round) {
    const int n = 2 + static_cast<int>(random() % 3);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(n));
    const long moment_us = static_cast<long>(random() % 60'000);
    EXPECT_EQ(run_ranks(
                  Mode::kProcesses, n,
                  [&](tr_comm_t comm, int rank, int) {
                    return sum_windows_until_failure(comm, rank, victim, moment_us);
                  },
                  30),
              "rank " + std::to_string(victim) + ": died of signal 9\n")
        << "round " << round << ", n " << n << ", killed after " << moment_us << " us";
  }
}

TEST(Kill, WithinAGroupToo) {
  std::mt19937 random(a_seed());
  const Env quiet("TR_LOG", "off");
  // Pinned host memory, which this run may have instead (meson.build), has no LL128.
  const bool is_pinned = std::getenv("CUDASIM_BETWEEN") != nullptr;
  for (const char* protocol : {"Simple", "LL", "LL128"}) {
    if (is_pinned && std::string_view(protocol) == "LL128") continue;
    const Env forced("TR_PROTOCOL", protocol);
    const int n = 2 + static_cast<int>(random() % 3);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(n));
    const long moment_us = static_cast<long>(random() % 60'000);
    EXPECT_EQ(run_ranks(
                  Mode::kProcesses, n,
                  [&](tr_comm_t comm, int rank, int) -> std::string {
                    if (rank == victim) die_after_us(moment_us);
                    return run_groups_until_failure(comm, rank, victim);
                  },
                  30),
              "rank " + std::to_string(victim) + ": died of signal 9\n")
        << protocol << ", n " << n << ", killed after " << moment_us << " us";
  }
}

TEST(Kill, OfAPeerOfSendsAndReceivesToo) {
  std::mt19937 random(a_seed());
  const Env quiet("TR_LOG", "off");
  for (int round = 0; round < 6; ++round) {
    const int n = 2 + static_cast<int>(random() % 3);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(n));
    const long moment_us = static_cast<long>(random() % 60'000);
    const bool on_stream = round % 2 == 1;
    EXPECT_EQ(run_ranks(
                  Mode::kProcesses, n,
                  [&](tr_comm_t comm, int rank, int size) -> std::string {
                    if (rank == victim) die_after_us(moment_us);
                    return pass_on_until_failure(comm, rank, size, victim, on_stream);
                  },
                  30),
              "rank " + std::to_string(victim) + ": died of signal 9\n")
        << "round " << round << ", n " << n << ", killed after " << moment_us << " us";
  }
}

}  // namespace
}  // namespace treering::test
