// A peer that can be told to misbehave, for the tests of `treering perf`. Its ranks share a file in
// the driver's private directory and sum float32 in rank order; nothing of Treering or a peer is in
// it.
//
// FAKE_WRONG=K: rank 0 spoils K elements of each result. FAKE_SLEEP_US=U: each operation takes U us
// more. FAKE_DIE=R: rank R kills itself in its first operation. FAKE_HANG=R: rank R stops answering
// there.
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "perf/wire.hpp"
#include "perf/worker.hpp"

namespace treering::perf {
namespace {

constexpr std::size_t kSlotBytes = 1 << 20;

int variable_or(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

class FakeLibrary final : public Library {
 public:
  // The file is new and zero: every rank opens and sizes it alike.
  bool open() {
    const std::string path = std::string(std::getenv(kDirVariable)) + "/fake";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    const std::size_t bytes = kSlotBytes * (static_cast<std::size_t>(ranks_) + 1);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return false;
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (memory == MAP_FAILED) return false;
    arrivals_ = static_cast<std::atomic<std::uint64_t>*>(memory);
    slots_ = static_cast<char*>(memory) + kSlotBytes;
    meet();  // nobody says hello, and the directory stays, until all have opened it
    return true;
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::string version() const override { return "Fake 1"; }

  std::vector<std::string> settings(const Case& what, std::string* why) override {
    if (what.op == Op::kAllReduce && what.type == TR_FLOAT32 && what.redop == RedOp::kSum)
      return {""};
    *why = "the fake sums float32 only";
    return {};
  }

  Failure prepare(const std::string&, const Case& what, void* send, void* recv) override {
    count_ = what.count;
    send_ = static_cast<float*>(send);
    recv_ = static_cast<float*>(recv);
    return std::nullopt;
  }

  Failure barrier() override {
    meet();
    return std::nullopt;
  }

  Failure run(std::uint64_t times) override {
    if (variable_or("FAKE_DIE", -1) == rank_) ::raise(SIGKILL);
    if (variable_or("FAKE_HANG", -1) == rank_) ::pause();
    for (std::uint64_t i = 0; i < times; ++i) sum();
    return std::nullopt;
  }

 private:
  float* slot(int rank) {
    return reinterpret_cast<float*>(slots_ + static_cast<std::size_t>(rank) * kSlotBytes);
  }

  void sum() {
    std::memcpy(slot(rank_), send_, count_ * sizeof(float));
    meet();
    for (std::uint64_t i = 0; i < count_; ++i) {
      float value = slot(0)[i];
      for (int rank = 1; rank < ranks_; ++rank) value += slot(rank)[i];
      recv_[i] = value;
    }
    if (rank_ == 0) {
      for (int i = 0; i < variable_or("FAKE_WRONG", 0); ++i) {
        recv_[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(recv_[i]) ^ 1);
      }
    }
    if (const int us = variable_or("FAKE_SLEEP_US", 0)) ::usleep(static_cast<useconds_t>(us));
    meet();
  }

  // Barrier k ends when k * ranks arrivals have been counted. Release: what a rank wrote before;
  // acquire: its partner, the load of the others.
  void meet() {
    const std::uint64_t goal = ++meetings_ * static_cast<std::uint64_t>(ranks_);
    arrivals_->fetch_add(1, std::memory_order_release);
    while (arrivals_->load(std::memory_order_acquire) < goal) ::sched_yield();
  }

  int rank_ = variable_or("RANK", 0);
  int ranks_ = variable_or("WORLD_SIZE", 1);
  std::atomic<std::uint64_t>* arrivals_ = nullptr;
  char* slots_ = nullptr;
  std::uint64_t meetings_ = 0;
  std::uint64_t count_ = 0;
  float* send_ = nullptr;
  float* recv_ = nullptr;
};

}  // namespace
}  // namespace treering::perf

int main() {
  treering::perf::limit_start_up();
  treering::perf::FakeLibrary library;
  if (!library.open()) {
    std::perror("the fake cannot map its file");
    return 1;
  }
  return treering::perf::run_worker(library);
}
