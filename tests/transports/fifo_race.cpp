// What test_tsan.py watches: every kind of reuse in a FIFO, between threads.
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "tests/transports/fifo_traffic.hpp"

int main() {
  using namespace treering::test;
  std::mt19937_64 random(1);
  std::string error = exchange(random_messages(2000, 50, random), 1);
  if (error.empty()) error = exchange(random_messages(1000, 50, random), 3);
  std::puts(error.empty() ? "every message came as it was sent" : error.c_str());
  return error.empty() ? 0 : 1;
}
