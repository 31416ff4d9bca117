// The host side inside: devices, streams of operations, events, captures.
//
// Everything here is guarded by one mutex (Runtime::mutex). An operation is the unit of all order:
// a stream is a thread that runs its operations one after the other, each after the operations
// that it names; an event is the operation that it was recorded with; a graph is operations not
// yet issued.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cudasim.h"
#include "settings.hpp"

namespace cudasim {

struct Op {
  std::function<void()> run;  // null: only a mark
  std::vector<std::shared_ptr<Op>> after;
  bool done = false;
  double ended_s = 0;
  std::condition_variable changed;
};
using OpRef = std::shared_ptr<Op>;

// A node of a graph: an operation to be issued at each launch.
struct Node {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  std::function<void()> run;
  std::vector<std::size_t> after;  // numbers of earlier nodes
};

struct Graph {
  std::vector<Node> nodes;
};

struct Capture {
  unsigned long long id = 0;
  struct Stream* origin = nullptr;
  cudaStreamCaptureMode mode{};
  std::size_t thread = 0;  // that began it
  bool broken = false;
  std::unique_ptr<Graph> graph;
  std::set<struct Stream*> streams;
};

struct Stream {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  bool is_legacy = false;
  unsigned long long id = 0;
  std::deque<OpRef> queue;
  OpRef last;
  bool has_thread = false;
  bool closing = false;
  std::condition_variable wake;
  Capture* capture = nullptr;
  std::vector<std::size_t> frontier;  // nodes of the capture that the next one comes after
};

struct Event {
  int device = 0;
  unsigned flags = 0;
  OpRef op;                           // null: never recorded
  unsigned long long capture_id = 0;  // not 0: recorded in this capture, after these nodes
  std::vector<std::size_t> nodes;
};

struct GraphExec {
  Graph graph;
  std::vector<Stream*> lanes;        // streams of its own, so that branches run side by side
  std::vector<std::size_t> lane_of;  // of each node
  OpRef last;                        // the end of the last launch
};

struct Device {
  Stream* legacy = nullptr;
  std::set<Stream*> streams;
  std::uint32_t peers = 0;  // devices that peer access was enabled for
  std::size_t used_bytes = 0;
  std::set<const void*> loaded;  // kernels that were used here (CUDASIM_STRICT)
};

struct Runtime {
  std::mutex mutex;
  int process = 0;  // that initialised it; a forked child is refused
  std::vector<Device> devices;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<Graph*> graphs;
  std::set<GraphExec*> execs;
  std::map<unsigned long long, std::unique_ptr<Capture>> captures;
  std::map<const void*, std::size_t> max_shared;  // of kernels that asked for more than 48 KiB
  std::map<std::string, std::pair<int, cudaError_t>> failures;  // calls left until it fails
  unsigned long long next_id = 1;
};
Runtime& runtime();
using Lock = std::unique_lock<std::mutex>;

// Every call of the API: is it allowed now, is it to fail, remember its error.
cudaError_t enter(const char* name);
cudaError_t remember(cudaError_t error);
template <class F>
cudaError_t api(const char* name, F f) {
  cudaError_t error = enter(name);
  if (error == cudaSuccess) error = f();
  return remember(error);
}
template <class F>
cudaError_t locked_api(const char* name, F f) {
  return api(name, [&] {
    Lock lock(runtime().mutex);
    return f(lock);
  });
}

int current_device();
extern thread_local bool in_host_function;
extern std::atomic<std::uint64_t> launched;  // kernels, captured ones once
// The reason why a call that may wait for the device is not allowed now: a capture. It breaks that
// capture, as in CUDA.
cudaError_t unsafe_call(Lock& lock);

// null: no such stream. Handles 0, 1 and 2 are the default streams.
Stream* find_stream(Lock& lock, cudaStream_t handle);
Stream* make_stream(Lock& lock, int device, unsigned flags, int priority);
// Adds work to a stream, or to the graph that it captures. `*op`, if asked for: what to wait for,
// null while capturing.
cudaError_t submit(Lock& lock, Stream& stream, cudaGraphNodeType type, std::function<void()> run,
                   OpRef* op = nullptr);
OpRef issue(Lock& lock, Stream& stream, std::function<void()> run, std::vector<OpRef> after = {});
void wait_for(Lock& lock, const OpRef& op, const char* who);
void wait_for_device(Lock& lock, int device, const char* who);
bool is_done(const OpRef& op);
// Kernels are loaded lazily: whatever first uses one on a device may wait for all that runs there.
// It does with CUDASIM_STRICT.
void load_kernel(Lock& lock, int device, const void* kernel);

template <class F>
cudaError_t with_stream(const char* name, cudaStream_t handle, F f) {
  return locked_api(name, [&](Lock& lock) {
    Stream* stream = find_stream(lock, handle);
    return stream != nullptr ? f(lock, *stream) : cudaErrorInvalidResourceHandle;
  });
}

std::atomic<Between>& between(int device, int other);
bool has_access(int device, int other);

// What lies at an address.
struct Place {
  enum class Kind : std::uint8_t {
    kNone,
    kDevice,
    kHost,
    kRegistered,
    kIpc,
    kVmm
  } kind = Kind::kNone;
  int device = -1;
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  int owner = -1;  // the device whose memory it is, however mapped
};
Place place_of(Lock& lock, const void* p);
std::size_t live_allocations(Lock& lock);
std::size_t capture_thread();  // the calling thread, as captures name it

}  // namespace cudasim
