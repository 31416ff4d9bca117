#include "topo/core_distance.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <pthread.h>
#include <sched.h>

namespace treering::topo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBatches = 20;     // the best one counts: others were interrupted
constexpr int kRoundTrips = 50;  // in a batch
constexpr int kSpins = 2000;     // between looks at the clock

// The line that travels: even values are the first thread's to answer, odd ones the second's.
struct alignas(128) Line {
  std::atomic<std::uint32_t> turn{0};
  std::atomic<bool> stop{false};
};

struct Player {
  Line* line;
  int cpu;
  std::uint32_t first;  // the turn that it answers first
  Clock::time_point end;
  double best_ns = 0;
};

bool pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

// Waits for a turn; false if the other stopped or time is up. Partner: the other's answer().
bool await(Line& line, std::uint32_t turn, Clock::time_point end) {
  for (;;) {
    for (int i = 0; i < kSpins; ++i) {
      if (line.turn.load(std::memory_order_acquire) == turn) return true;
    }
    // Its partner stores it with release.
    if (line.stop.load(std::memory_order_acquire) || Clock::now() >= end) return false;
  }
}

// Partner: the other's await().
void answer(Line& line, std::uint32_t turn) {
  line.turn.store(turn + 1, std::memory_order_release);
}

void* play(void* argument) {
  Player& player = *static_cast<Player*>(argument);
  Line& line = *player.line;
  bool going = pin(player.cpu);
  std::uint32_t turn = player.first;
  for (int batch = 0; going && batch < kBatches; ++batch) {
    const auto start = Clock::now();
    for (int i = 0; going && i < kRoundTrips; ++i, turn += 2) {
      going = await(line, turn, player.end);
      if (going) answer(line, turn);
    }
    const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    if (!going) break;
    const double each = ns / kRoundTrips;
    player.best_ns = player.best_ns == 0 ? each : std::min(player.best_ns, each);
  }
  // Partner: the load in the other's await().
  line.stop.store(true, std::memory_order_release);
  return nullptr;
}

double measure_pair(int a, int b, Clock::time_point end) {
  Line line;
  Player players[2] = {{&line, a, 0, end}, {&line, b, 1, end}};
  pthread_t threads[2];
  int started = 0;
  for (; started < 2; ++started) {
    if (::pthread_create(&threads[started], nullptr, &play, &players[started]) != 0) break;
  }
  // Partner: the load in await() of the thread that has started alone.
  if (started < 2) line.stop.store(true, std::memory_order_release);
  for (int i = 0; i < started; ++i) ::pthread_join(threads[i], nullptr);
  return std::min(players[0].best_ns, players[1].best_ns);
}

}  // namespace

CoreDistances measure_core_distances(const std::vector<int>& cpus, Deadline deadline) {
  CoreDistances out;
  out.cpus = cpus;
  const std::size_t n = cpus.size();
  out.ns.assign(n * n, 0);
  auto pairs_left = static_cast<std::int64_t>(n * (n - 1) / 2);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i + 1; j < n; ++j) {
      if (deadline.expired()) return out;
      // An even share of the time that is left; most pairs need far less.
      const auto most = deadline.remaining() / pairs_left--;
      const double ns = measure_pair(cpus[i], cpus[j], Clock::now() + most);
      out.ns[i * n + j] = out.ns[j * n + i] = ns;
    }
  }
  return out;
}

std::vector<int> sample_cores(const std::vector<int>& cores, std::size_t most) {
  if (cores.size() <= most) return cores;
  std::vector<int> out;
  const std::size_t pairs = most / 2;
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::size_t at = i * (cores.size() - 1) / pairs;
    out.push_back(cores[at]);
    out.push_back(cores[at + 1]);
  }
  return out;
}

}  // namespace treering::topo
