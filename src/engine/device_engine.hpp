// DeviceEngine: runs collectives on device memory by kernels, for one communicator.
//
// It is to a GPU what Engine is to the host: collectives that are issued together are one kernel
// launch on a stream, and so are the sends and receives of a group. All collectives of a
// communicator run one after another, on whichever streams they are, because they share links; so
// do its groups of sends and receives, but those and collectives do not wait for each other. A
// kernel that waits for a peer has a deadline and an abort flag, and writes down what it waited
// for.
//
// No CUDA header; builds without CUDA have stubs (no_cuda.cpp). Threads: one at a time (the
// communicator's guard), but abort.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device_link.hpp"
#include "core/status.hpp"
#include "engine/operation.hpp"
#include "transports/device_links.hpp"

namespace treering {

// How a call is run on the device; agreed by all ranks.
struct DevicePlan {
  const char* algorithm = nullptr;
  DeviceProtocol protocol = DeviceProtocol::kSimple;
  bool by_copies = false;  // DeviceEngine::copy; the rest is for kernels
  int lanes = 1;
  int channels = 1;
  int chunks = 1;
  std::uint64_t slice_elems = 1;
  std::uint32_t slices_per_round = 1;
  // Of algorithms on windows: those that the call's token names. Each channel then gets one slice
  // of each chunk, whatever slice_elems says.
  const std::vector<WindowMap>* windows = nullptr;
};

// A collective on its way to the device.
struct CollectiveCall {
  const Call* call = nullptr;
  DevicePlan plan;  // by_copies is false
  std::uint64_t signature = 0;
  // With a call before it that is issued together with it; one of the two writes them.
  bool shares_bytes = false;
};

// A send or receive on its way to the device.
struct MessageCall {
  const Call* call = nullptr;
  // Of type and count, as slice_elems: both ends must have the same.
  std::uint64_t signature = 0;
  std::uint64_t slice_elems = 1;
};

// A call that copy engines serve: it moves data between windows, and folds nothing.
struct CopyCall {
  const algos::Algorithm* algorithm = nullptr;
  const Call* call = nullptr;  // its token names the windows
  const std::vector<WindowMap>* windows = nullptr;
  // Equal only on ranks whose calls are, and the places of the buffers that peers reach.
  std::uint64_t signature = 0;
  bool in_place = false;  // of an all-gather: the parts lie in the receive buffers
};

class DeviceEngine {
 public:
  virtual ~DeviceEngine() = default;
  virtual const DeviceLinks& links() const = 0;
  // Blocks that one collective may use: reserved for this communicator on its device, so that no
  // kernel of another communicator can keep them from running. (Messages have blocks beside them.)
  virtual int max_blocks() const = 0;

  // Starts the calls on `stream` (a cudaStream_t), or on one of the engine's own for nullptr: one
  // after another, in as few kernels as can run them. Returns when they are enqueued. All buffers
  // lie in device memory.
  virtual Status launch(std::span<const CollectiveCall> calls, void* stream) = 0;
  // Starts sends and receives that progress together, in one kernel, which runs as if on each of
  // `streams` (different ones; nullptr as in launch). At most kMaxMessages of them, in issue order.
  virtual Status launch_messages(std::span<const MessageCall> calls,
                                 std::span<void* const> streams) = 0;
  static constexpr int kMaxMessages = 768;
  // Moves without a kernel (engine/cuda_copy_engine.hpp). All ranks start, and then all check,
  // before any of them may copy; an error says why there is no such thing here.
  virtual Status start_copies() = 0;
  virtual Status check_copies() = 0;
  // As launch. Every peer's window and offset are taken to be this rank's own.
  virtual Status copy(const CopyCall& call, void* stream) = 0;
  // While a copy waits, a thread of the engine calls it now and then, and expects it to call abort
  // when check() finds something. nullptr: no more, once set_watch has returned.
  virtual void set_watch(std::function<void()> watch) = 0;
  // Is everything on the engine's own stream done?
  virtual Result<bool> is_idle() = 0;
  // Until everything launched is done.
  virtual Status drain() = 0;
  // What a kernel wrote down when it gave up, or why a copy did; ok if none did.
  virtual Status check() const = 0;
  // Of every wait of the kernels launched from now on.
  // timeout_ms: more than 0, see device_timeout_ms.
  virtual void set_timeout_ms(std::int64_t timeout_ms) = 0;
  // Kernels that wait give up soon, and so do copies: what they then leave is not what was asked
  // for, so peers must have been told before. Any thread.
  virtual void abort() = 0;
};

// A kernel's clock knows no never: 0 is a century there.
constexpr std::int64_t device_timeout_ms(std::int64_t timeout_ms) {
  constexpr std::int64_t kCenturyMs = 100LL * 366 * 24 * 3600 * 1000;
  return timeout_ms > 0 ? timeout_ms : kCenturyMs;
}

Result<std::unique_ptr<DeviceEngine>> make_device_engine(std::unique_ptr<DeviceLinks> links,
                                                         std::int64_t timeout_ms);

// Is there a kernel for it?
bool device_has(Collective collective, const char* algorithm, DeviceProtocol protocol);

// Is there a GPU, and a driver for it?
bool has_devices();

// Is it memory of a GPU? False in builds without CUDA and where there is no GPU.
bool is_device_memory(const void* pointer);

// Is everything on a stream (a cudaStream_t) done?
Result<bool> query_device_stream(void* stream);

}  // namespace treering
