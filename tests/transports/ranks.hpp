// Ranks for tests of transports: threads of this process or forked processes, and a rendezvous for
// them in memory that they all inherit.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "bootstrap/rendezvous.hpp"

namespace treering::test {

inline constexpr std::size_t kBlobBytes = 64 * 1024;

// One rank's place in the shared memory. Blob k lies in slot k % 2: a rank that writes blob k + 2
// knows that all have come to k + 1, and so have read k.
struct Place {
  std::atomic<std::uint64_t> arrived;  // rounds; pairs with the load in all_gather
  std::size_t bytes[2];
  char blob[2][kBlobBytes];
  char report[1024];  // of a process: its first error
};

class Places {
 public:
  explicit Places(int size) : size_(size) {
    void* const memory = ::mmap(nullptr, sizeof(Place) * static_cast<std::size_t>(size),
                                PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    places_ = static_cast<Place*>(memory);
  }
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;
  ~Places() { ::munmap(places_, sizeof(Place) * static_cast<std::size_t>(size_)); }

  int size() const { return size_; }
  Place& operator[](int rank) { return places_[rank]; }

 private:
  int size_;
  Place* places_;
};

class TestRendezvous : public Rendezvous {
 public:
  TestRendezvous(Places& places, int rank, int timeout_ms = 20000)
      : places_(places), rank_(rank), timeout_(timeout_ms) {}

  int rank() const override { return rank_; }
  int size() const override { return places_.size(); }
  Secret link_key() const override { return {'t', 'e', 's', 't'}; }
  Result<std::vector<std::string>> all_gather(const std::string& blob) override {
    if (blob.size() > kBlobBytes) return invalid_argument("the blob is too long");
    const std::uint64_t slot = round_ % 2;
    Place& own = places_[rank_];
    own.bytes[slot] = blob.size();
    std::memcpy(own.blob[slot], blob.data(), blob.size());
    own.arrived.store(++round_, std::memory_order_release);
    const auto limit = std::chrono::steady_clock::now() + timeout_;
    std::vector<std::string> all;
    for (int r = 0; r < size(); ++r) {
      while (places_[r].arrived.load(std::memory_order_acquire) < round_) {
        if (std::chrono::steady_clock::now() > limit)
          return Status(Code::kTimeout, "rank " + std::to_string(r) + " did not come");
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      all.emplace_back(places_[r].blob[slot], places_[r].bytes[slot]);
    }
    return all;
  }
  // Nobody leaves before all have come.
  std::string barrier() { return all_gather("").status().message(); }

 private:
  Places& places_;
  int rank_;
  std::chrono::milliseconds timeout_;
  std::uint64_t round_ = 0;
};

// A barrier of some ranks, where the rendezvous cannot be one because a rank is dead. Made before
// the ranks.
class SurvivorBarrier {
 public:
  explicit SurvivorBarrier(int count) : count_(count), place_(1) {}
  // False if the others do not come within ten seconds.
  bool wait() {
    std::atomic<std::uint64_t>& arrived = place_[0].arrived;
    arrived.fetch_add(1, std::memory_order_acq_rel);
    for (int i = 0; i < 10000; ++i) {
      if (arrived.load(std::memory_order_acquire) >= static_cast<std::uint64_t>(count_))
        return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

 private:
  int count_;
  Places place_;
};

// What a rank does; returns its first error, "" for none.
using Body = std::function<std::string(TestRendezvous&)>;

// Leaves a body with the place and the text of what does not hold.
#define TR_MUST(condition)                                                             \
  do {                                                                                 \
    if (!(condition))                                                                  \
      return std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " #condition; \
  } while (0)
// The same for an expression of type Status.
#define TR_MUST_OK(expression)                                                                    \
  do {                                                                                            \
    if (const ::treering::Status tr_status = (expression); !tr_status.ok())                       \
      return std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " + tr_status.message(); \
  } while (0)
// The same for two strings: shows both.
#define TR_MUST_EQ(actual, expected)                                                       \
  do {                                                                                     \
    const std::string tr_actual = (actual);                                                \
    const std::string tr_expected = (expected);                                            \
    if (tr_actual != tr_expected)                                                          \
      return std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": \"" + tr_actual + \
             "\" is not \"" + tr_expected + "\"";                                          \
  } while (0)

inline void add_error(std::string& all, int rank, const std::string& error) {
  if (!error.empty()) all += "rank " + std::to_string(rank) + ": " + error + "\n";
}

// All errors, "" for none.
inline std::string run_threads(int ranks, const Body& body) {
  Places places(ranks);
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      TestRendezvous rendezvous(places, r);
      errors[static_cast<std::size_t>(r)] = body(rendezvous);
    });
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (int r = 0; r < ranks; ++r) add_error(all, r, errors[static_cast<std::size_t>(r)]);
  return all;
}

// Ranks as forked processes, `threads` ranks in each: rank r lives in process r / threads. A
// process that ends otherwise than by returning from its bodies is an error, unless its number is
// in `may_die`.
inline std::string run_processes(int ranks, const Body& body, int threads = 1,
                                 const std::vector<int>& may_die = {}) {
  Places places(ranks);
  const auto run_rank = [&](int rank) {
    TestRendezvous rendezvous(places, rank);
    const std::string error = body(rendezvous);
    std::strncpy(places[rank].report, error.c_str(), sizeof(Place::report) - 1);
  };
  std::vector<pid_t> children;
  for (int first = 0; first < ranks; first += threads) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::vector<std::thread> others;
      for (int r = first + 1; r < first + threads && r < ranks; ++r)
        others.emplace_back(run_rank, r);
      run_rank(first);
      for (std::thread& other : others) other.join();
      ::_exit(0);
    }
    children.push_back(child);
  }
  // Dead children stay zombies until all have ended: their peers must notice all the same.
  std::string all;
  for (const pid_t child : children) {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  }
  for (std::size_t p = 0; p < children.size(); ++p) {
    int status = 0;
    ::waitpid(children[p], &status, 0);
    bool excused = false;
    for (const int number : may_die) excused = excused || number == static_cast<int>(p);
    if (!excused && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
      all += "process " + std::to_string(p) + " ended with wait status " + std::to_string(status) +
             "\n";
  }
  for (int r = 0; r < ranks; ++r) add_error(all, r, places[r].report);
  return all;
}

}  // namespace treering::test
