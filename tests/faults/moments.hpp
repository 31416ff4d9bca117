// Deaths at chosen moments, for tests of what survives them.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <signal.h>
#include <string>
#include <sys/time.h>
#include <unistd.h>

namespace treering::test {

// This process is killed (SIGKILL) after so many microseconds, whatever it does.
inline void die_after_us(long us) {
  ::signal(SIGALRM, [](int) { ::kill(::getpid(), SIGKILL); });
  itimerval t{};
  t.it_value.tv_sec = us / 1'000'000;
  t.it_value.tv_usec = us % 1'000'000 + 1;
  ::setitimer(ITIMER_REAL, &t, nullptr);
}

// What run_ranks says when these ranks, in this order, were killed and nothing else went wrong.
inline std::string killed(std::initializer_list<int> ranks) {
  std::string text;
  for (int r = 0; r < 64; ++r) {
    for (const int one : ranks) {
      if (one == r) text += "rank " + std::to_string(r) + ": died of signal 9\n";
    }
  }
  return text;
}

// TR_TEST_SEED, or a new one, which is printed.
inline unsigned test_seed() {
  const char* const given = std::getenv("TR_TEST_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10))
                                         : std::random_device{}();
  std::printf("seed %u (TR_TEST_SEED repeats it)\n", seed);
  return seed;
}

}  // namespace treering::test
