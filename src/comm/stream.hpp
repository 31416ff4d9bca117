// Streams and events: order between calls that return before they are done.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/request.hpp"
#include "core/status.hpp"
#include "engine/engine.hpp"

namespace treering {

// Bytes that an operation reads and writes, to find out which operations of a stream may overlap.
struct Footprint {
  const std::byte* in = nullptr;
  std::uint64_t in_bytes = 0;
  std::byte* out = nullptr;
  std::uint64_t out_bytes = 0;
  bool everything = false;  // a barrier: ordered with all others
};
Footprint footprint_of(const Request& request);
bool must_follow(const Footprint& later, const Footprint& earlier);

// Whose kernels are on a CUDA stream: a communicator.
class StreamUser {
 public:
  virtual ~StreamUser() = default;
  // What a kernel reported, or why the communicator failed. Any thread.
  virtual Status async_error() const = 0;
  // The same, after a look at the peers: one that is gone fails the communicator, whose kernels
  // then end. Any thread.
  virtual Status watch() = 0;
  // When all of its work on a stream is done: did it do what was asked for?
  virtual Status settle() = 0;
};

// Thread-safe.
class Stream {
 public:
  Stream() = default;
  // A caller's CUDA stream (cudaStream_t), for operations on device memory: its order is CUDA's.
  explicit Stream(void* cuda_stream) : cuda_stream_(cuda_stream), is_cuda_(true) {}
  bool is_cuda() const { return is_cuda_; }
  void* cuda_stream() const { return cuda_stream_; }
  // What its kernels report are errors of the stream.
  void add(std::shared_ptr<StreamUser> user);

  // Adds `ticket` (not yet enqueued in its engine): fills ticket->after.
  void add(const std::shared_ptr<Ticket>& ticket, const Footprint& footprint);
  // Waits for all; the first error since the last synchronize.
  Status synchronize(int spin);
  bool query();
  // Everything added so far that is not done.
  std::vector<std::shared_ptr<Ticket>> pending();
  // Operations added from now on wait for these.
  void wait_for(const std::vector<std::shared_ptr<Ticket>>& tickets);

 private:
  struct Entry {
    std::shared_ptr<Ticket> ticket;
    Footprint footprint;
  };
  void prune_locked();

  Status synchronize_cuda(int spin);
  std::vector<std::shared_ptr<StreamUser>> users();

  void* cuda_stream_ = nullptr;
  bool is_cuda_ = false;
  std::mutex mutex_;  // guards all below
  std::vector<std::weak_ptr<StreamUser>> users_;
  std::deque<Entry> entries_;
  std::vector<std::shared_ptr<Ticket>> fences_;
  Status first_error_;
};

// A point in a stream. Thread-safe.
class Event {
 public:
  void record(Stream* stream);
  bool query();
  void synchronize(int spin);
  std::vector<std::shared_ptr<Ticket>> tickets();

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Ticket>> tickets_;
};

}  // namespace treering
