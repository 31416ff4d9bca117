// Ranks for status_test.py, started by `treering run`: two sums that all call, and then, by the
// first argument, what goes wrong. Each rank ends by itself when its standard input or the limit
// does.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "treering/treering.h"

namespace {

int fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, tr_get_last_error());
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  tr_comm_t comm = nullptr;
  int rank = 0, size = 0;
  if (tr_comm_init_env(&comm) != TR_SUCCESS) return fail("init");
  if (tr_comm_rank(comm, &rank) != TR_SUCCESS || tr_comm_size(comm, &size) != TR_SUCCESS)
    return fail("rank");
  std::vector<float> x(1000, 1.0f);
  const auto sum = [&](std::uint64_t count) {
    return tr_all_reduce(x.data(), x.data(), count, TR_FLOAT32, TR_SUM, comm, nullptr);
  };
  for (int i = 0; i < 2; ++i)
    if (sum(10) != TR_SUCCESS) return fail("sum");
  const bool is_last = rank == size - 1;
  if (is_last) std::printf("last rank is process %d\n", static_cast<int>(::getpid()));
  std::fflush(stdout);
  if (is_last && mode == "busy") std::this_thread::sleep_for(std::chrono::minutes(2));
  if (is_last && mode == "stopped") ::raise(SIGSTOP);
  if (mode == "mismatch") {
    if (sum(is_last ? 100 : 1000) == TR_MISMATCH) return 7;
    return fail("expected a mismatch");
  }
  const tr_result_t r = sum(1000);
  if (r != TR_SUCCESS) return fail("sum");
  if (tr_comm_destroy(comm) != TR_SUCCESS) return fail("destroy");
  return 0;
}
