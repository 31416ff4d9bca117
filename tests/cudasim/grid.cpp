#include "grid.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <pthread.h>
#include <thread>

#include "lazy.hpp"
#include "memory.hpp"
#include "report.hpp"
#include "settings.hpp"

namespace cudasim {
namespace {

unsigned whole_warps(unsigned threads) { return (threads + 31) / 32 * 32; }

struct Sm {
  unsigned threads = kThreadsPerSm;
  unsigned blocks = kBlocksPerSm;
  std::size_t shared = kSharedPerSm;
};

// The multiprocessors of one device.
class Sms {
 public:
  explicit Sms(int device) : device_(device), sms_(static_cast<std::size_t>(settings().sms)) {}

  // Waits for a place of block `number` of the launch.
  Sm* take(const Launch& launch, std::uint64_t number) {
    std::unique_lock lock(mutex_);
    if (Sm* sm = try_take(launch)) return sm;
    const unsigned room =
        blocks_per_sm(launch.threads(), launch.shared_bytes) * static_cast<unsigned>(sms_.size());
    const Note note(kernel_name(launch.kernel) + ", device " + std::to_string(device_) +
                    ": blocks from number " + std::to_string(number) + " of " +
                    std::to_string(launch.blocks()) + " on have not started: the device has " +
                    std::to_string(sms_.size()) + " SMs, room for " + std::to_string(room) +
                    " such blocks if nothing else runs");
    Sm* sm = nullptr;
    freed_.wait(lock, [&] { return (sm = try_take(launch)) != nullptr; });
    return sm;
  }

  void give_back(Sm* sm, const Launch& launch) {
    const std::lock_guard lock(mutex_);
    sm->threads += whole_warps(launch.threads());
    sm->blocks += 1;
    sm->shared += launch.shared_bytes + kSharedReserved;
    freed_.notify_all();
  }

 private:
  Sm* try_take(const Launch& launch) {
    Sm* best = nullptr;
    for (Sm& sm : sms_) {
      if (sm.threads < whole_warps(launch.threads()) || sm.blocks == 0) continue;
      if (sm.shared < launch.shared_bytes + kSharedReserved) continue;
      if (best == nullptr || sm.threads > best->threads) best = &sm;
    }
    if (best != nullptr) {
      best->threads -= whole_warps(launch.threads());
      best->blocks -= 1;
      best->shared -= launch.shared_bytes + kSharedReserved;
    }
    return best;
  }

  const int device_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Sm> sms_;
};

using AllSms = std::array<std::unique_ptr<Sms>, kMaxDevices>;
constinit Lazy<AllSms> all_sms([] {
  auto* all = new AllSms;
  for (int i = 0; i < kMaxDevices; ++i)
    (*all)[static_cast<std::size_t>(i)] = std::make_unique<Sms>(i);
  return all;
});

// OS threads, each with the fibers of one block. They are kept: fibers are costly to make.
class Crew {
 public:
  void run(std::function<void(Block&)> job) {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      auto* worker = new Worker;  // lives as long as the process
      worker->job = std::move(job);
      std::thread([this, worker] { work(*worker); }).detach();
      return;
    }
    Worker* worker = idle_.back();
    idle_.pop_back();
    worker->job = std::move(job);
    worker->wake.notify_one();
  }

 private:
  struct Worker {
    std::function<void(Block&)> job;
    std::condition_variable wake;
  };

  void work(Worker& worker) {
    pthread_setname_np(pthread_self(), "sim-block");
    explain_segv();
    Block block;
    std::unique_lock lock(mutex_);
    for (;;) {
      worker.wake.wait(lock, [&] { return worker.job != nullptr; });
      const auto job = std::exchange(worker.job, nullptr);
      lock.unlock();
      job(block);
      lock.lock();
      idle_.push_back(&worker);
    }
  }

  std::mutex mutex_;
  std::vector<Worker*> idle_;
};
constinit Lazy<Crew> crew;

}  // namespace

unsigned blocks_per_sm(unsigned threads, std::size_t shared_bytes) {
  if (threads == 0 || threads > kThreadsPerSm || shared_bytes > kSharedPerBlockOptin) return 0;
  const std::size_t by_threads = kThreadsPerSm / whole_warps(threads);
  const std::size_t by_shared = kSharedPerSm / (shared_bytes + kSharedReserved);
  return static_cast<unsigned>(std::min({by_threads, by_shared, std::size_t{kBlocksPerSm}}));
}

void run_grid(const Launch& launch) {
  Sms& places = *all_sms.get()[static_cast<std::size_t>(launch.device)];
  std::mutex mutex;
  std::condition_variable all_ended;
  std::uint64_t left = launch.blocks();
  std::uint64_t number = 0;
  for (unsigned z = 0; z < launch.grid.z; ++z) {
    for (unsigned y = 0; y < launch.grid.y; ++y) {
      for (unsigned x = 0; x < launch.grid.x; ++x) {
        Sm* sm = places.take(launch, number++);
        crew.get().run([&, sm, index = uint3{x, y, z}](Block& block) {
          block.run(launch, index);
          places.give_back(sm, launch);
          const std::lock_guard lock(mutex);
          if (--left == 0) all_ended.notify_one();
        });
      }
    }
  }
  std::unique_lock lock(mutex);
  all_ended.wait(lock, [&] { return left == 0; });
}

}  // namespace cudasim
