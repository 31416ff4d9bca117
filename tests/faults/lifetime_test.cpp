// Communicators come and go without leaking; memory is what the README says.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/ranks.hpp"

namespace treering::test {
namespace {

struct Resources {
  long fds = 0, mappings = 0, threads = 0;
};

long count_entries(const char* dir) {
  return std::distance(std::filesystem::directory_iterator(dir),
                       std::filesystem::directory_iterator());
}

Resources resources() {
  Resources r;
  r.fds = count_entries("/proc/self/fd");
  r.threads = count_entries("/proc/self/task");
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    r.mappings += line.find("memfd") != std::string::npos;
  return r;
}

std::string use_once(tr_comm_t comm, int rank) {
  float x = static_cast<float>(rank), y;
  tr_stream_t stream;
  if (const tr_result_t r = tr_stream_create(&stream); r != TR_SUCCESS) return failure("stream", r);
  if (const tr_result_t r = tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, stream);
      r != TR_SUCCESS)
    return failure("call", r);
  if (const tr_result_t r = tr_stream_destroy(stream); r != TR_SUCCESS)
    return failure("stream end", r);
  return y == 1 ? "" : "wrong sum";
}

// 1,000 communicators by splitting and destroying, on two processes.
TEST(Lifetime, ThousandCommunicatorsLeakNothing) {
  EXPECT_EQ(run_ranks(Mode::kProcesses, 2,
                      [](tr_comm_t comm, int rank, int) -> std::string {
                        Resources before;
                        for (int i = 0; i < 1001; ++i) {
                          tr_comm_t child = nullptr;
                          if (const tr_result_t r = tr_comm_split(comm, 0, rank, &child);
                              r != TR_SUCCESS)
                            return failure("split", r);
                          const std::string wrong = use_once(child, rank);
                          if (!wrong.empty()) return wrong;
                          if (const tr_result_t r = tr_comm_destroy(child); r != TR_SUCCESS)
                            return failure("destroy", r);
                          if (i == 0) before = resources();
                        }
                        const Resources after = resources();
                        if (after.fds != before.fds)
                          return "fds: " + std::to_string(before.fds) + " -> " +
                                 std::to_string(after.fds);
                        if (after.threads != before.threads)
                          return "threads: " + std::to_string(before.threads) + " -> " +
                                 std::to_string(after.threads);
                        if (after.mappings != before.mappings)
                          return "mappings: " + std::to_string(before.mappings) + " -> " +
                                 std::to_string(after.mappings);
                        return {};
                      }),
            "");
}

// Where not all threads can be started, none of them waits for the others.
TEST(Lifetime, TooLittleAddressSpaceForAllRanks) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{200 << 20, 200 << 20};  // a thread's stack takes 8 MiB
    std::vector<tr_comm_t> comms(64);
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(1);
    if (tr_comm_init_all(comms.data(), 64) != TR_SYSTEM_ERROR) ::_exit(2);
    ::_exit(std::strstr(tr_get_last_error(), "cannot start thread") != nullptr ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Handles are reused: a communicator that is still being destroyed by one thread must not get in
// the way of one that another thread has just made.
TEST(Lifetime, ThreadsCreateAndDestroySideBySide) {
  std::vector<std::thread> threads;
  std::vector<std::string> errors(8);
  for (std::string& error : errors) {
    threads.emplace_back([&error] {
      for (int i = 0; i < 400 && error.empty(); ++i) {
        tr_comm_t comm = nullptr;
        float x = 1;
        if (tr_comm_init_all(&comm, 1) != TR_SUCCESS ||
            tr_all_reduce(&x, &x, 1, TR_FLOAT32, TR_SUM, comm, nullptr) != TR_SUCCESS ||
            tr_comm_destroy(comm) != TR_SUCCESS) {
          error = tr_get_last_error();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// The store's thread ends by itself some time after the last rank has left, and closes what it
// holds as it goes: nothing is counted before only this thread is left.
Resources resources_when_alone() {
  for (int wait = 0; wait < 500 && resources().threads > 1; ++wait) ::usleep(20'000);
  return resources();
}

// From scratch, unique id and store included.
TEST(Lifetime, InitAndDestroyLeakNothing) {
  Resources before;
  for (int i = 0; i < 60; ++i) {
    tr_comm_t comms[3];
    ASSERT_EQ(tr_comm_init_all(comms, 3), TR_SUCCESS) << tr_get_last_error();
    for (tr_comm_t c : comms) ASSERT_EQ(tr_comm_destroy(c), TR_SUCCESS) << tr_get_last_error();
    if (i == 4) before = resources_when_alone();
  }
  const Resources after = resources_when_alone();
  EXPECT_EQ(after.fds, before.fds);
  EXPECT_EQ(after.threads, 1);
  EXPECT_LE(after.mappings, before.mappings);
}

// What the segments that this process maps hold, whoever touched it. Not the process's own
// RssShmem: a read fault maps neighbouring pages too, those of other ranks' links.
long segments_kib() {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::size_t pages = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::size_t begin = 0, end = 0;
    if (line.find("memfd:treering") == std::string::npos) continue;
    if (std::sscanf(line.c_str(), "%zx-%zx", &begin, &end) != 2) return -1;
    std::vector<unsigned char> in_memory((end - begin) / page);
    if (::mincore(reinterpret_cast<void*>(begin), end - begin, in_memory.data()) != 0) return -1;
    for (const unsigned char p : in_memory) pages += p & 1;
  }
  return static_cast<long>(pages * page / 1024);
}

// README, "Memory": what a communicator has made resident once all-reduces of all sizes have run.
constexpr long kPairLinkKib = 128;
constexpr long kCastLinkKib = 256;
constexpr long kControlKib = 24;  // of a rank's segment: its board, and the lines of all its links

TEST(Lifetime, MemoryPerPair) {
  for (const int n : {2, 4}) {
    EXPECT_EQ(run_ranks(Mode::kProcesses, n,
                        [](tr_comm_t comm, int, int size) -> std::string {
                          std::vector<float> in(1 << 20, 1), out(1 << 20);
                          for (std::uint64_t count = 1; count <= in.size(); count *= 4) {
                            const tr_result_t r = tr_all_reduce(in.data(), out.data(), count,
                                                                TR_FLOAT32, TR_SUM, comm, nullptr);
                            if (r != TR_SUCCESS) return failure("all_reduce", r);
                          }
                          if (const tr_result_t r = tr_barrier(comm, nullptr); r != TR_SUCCESS)
                            return failure("barrier", r);
                          const long used = segments_kib();
                          const long data = (size - 1) * kPairLinkKib + kCastLinkKib;
                          if (used < size * data || used > size * (data + kControlKib))
                            return std::to_string(used) + " KiB in the segments, not " +
                                   std::to_string(size * data) + " and some for control";
                          return {};
                        }),
              "");
  }
}

}  // namespace
}  // namespace treering::test
