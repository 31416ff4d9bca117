// CopyEngine: runs an algorithm on windows that only moves data (algos/window.hpp) without a
// kernel: copies, which a GPU's copy engines make, and words that streams write and wait for.
//
// It reads the recorded schedule and enqueues each step on a stream. The s-th publish of a call
// writes the call's value to word s of this rank at every peer; await waits until its own words
// have exactly that value, and clears them. So words are zero again before the next call, captured
// graphs may be played again, and nothing is copied before all ranks have made the same call: the
// value is made of everything that must be equal (the operation, its count and number, and where in
// which window the buffers lie that peers reach).
//
//   Why a word that is cleared late never wipes out the next value: a peer writes word s of its
//   next call after it has seen the last publish of this one, which this rank's stream wrote after
//   it had cleared word s; or, the last word, cleared before this rank's next first publish.
//
// A stream's wait has no deadline of its own. A thread watches it while a call is under way: it
// has the communicator look at its peers, fails what waits for too long, and, once the communicator
// has failed, writes the awaited values itself, so that the stream goes on to its end. What that
// leaves in the receive buffers means nothing; the failure is on the board before. And because a
// peer may never have made the call, copies write to this rank's own receive buffer only.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cuda_runtime.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <thread>
#include <utility>
#include <vector>

#include "core/cuda_stream.hpp"
#include "engine/cuda_resources.hpp"
#include "engine/cuda_stream_words.hpp"
#include "engine/device_engine.hpp"

namespace treering {

class CopyEngine {
 public:
  // shared: host memory that the device sees at on_device. An error says why there can be none.
  static Result<std::unique_ptr<CopyEngine>> make(const DeviceLinks& links,
                                                  SharedWithKernels& shared,
                                                  SharedWithKernels* on_device,
                                                  std::int64_t timeout_ms);
  // Everything enqueued must be done.
  ~CopyEngine();

  // A stream writes a word to every peer; then, when all ranks have done so: is everybody's here?
  Status say_hello();
  Status check_hellos();

  // With the links' device current.
  Status enqueue(const CopyCall& call, cudaStream_t stream);
  // Timeout, if a call waited for too long.
  Status check() const;
  // Every wait ends soon, also of calls enqueued later. Any thread.
  void release();
  void set_timeout_ms(std::int64_t timeout_ms) { timeout_ms_ = timeout_ms; }
  void set_watch(std::function<void()> watch);

 private:
  using Clock = std::chrono::steady_clock;
  struct Move {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::uint64_t bytes = 0;
  };

  CopyEngine(const DeviceLinks& links, SharedWithKernels& shared, SharedWithKernels* on_device,
             std::int64_t timeout_ms);
  const algos::Schedule& schedule_of(const algos::Algorithm& algorithm, int root);
  Result<std::vector<Move>> moves_of(const CopyCall& call, const algos::Schedule& schedule) const;
  std::uint64_t* word(int owner, int stage, int writer) const;
  void publish(StreamWords::Batch& batch, int stage, std::uint64_t value) const;
  void await_all(StreamWords::Batch& batch, int stage, std::uint64_t value) const;

  // The thread's.
  Status start_thread();
  void run();
  bool is_busy() const;
  void look();
  void fail(std::uint64_t awaited);
  std::string missing(std::uint64_t awaited);
  void write_everything(std::uint64_t value);

  const DeviceLinks& links_;
  SharedWithKernels& shared_;
  SharedWithKernels* on_device_;
  StreamWords words_;
  CudaStream urgent_;  // for what must not queue up behind a wait
  std::map<std::pair<const algos::Algorithm*, int>, algos::Schedule> schedules_;
  std::uint64_t issued_ = 0;  // calls that were enqueued, not captured; mutex_

  std::atomic<std::int64_t> timeout_ms_;
  std::atomic<bool> released_{false};
  std::atomic<bool> has_failed_{false};  // release: failure_ is set
  Status failure_;

  std::thread thread_;
  pid_t process_ = 0;  // the thread's
  std::mutex mutex_;   // guards issued_ and the two below
  std::condition_variable wake_;
  bool stop_ = false;
  bool is_captured_ = false;  // some call is in a graph, which may be played at any time
  std::mutex watch_mutex_;    // held while watch_ runs
  std::function<void()> watch_;
  std::uint64_t awaited_ = 0;  // as the thread saw it last, and since when
  Clock::time_point since_;
};

}  // namespace treering
