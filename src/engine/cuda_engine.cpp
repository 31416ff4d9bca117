// The device engine over CUDA: from a call to a kernel launch.
#include <algorithm>
#include <atomic>
#include <cuda_runtime.h>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "algos/cuda/call.hpp"
#include "algos/cuda/kernels.hpp"
#include "algos/prims.hpp"
#include "core/cuda_stream.hpp"
#include "engine/device_engine.hpp"

namespace treering {
namespace {

using cuda::DeviceCall;
using cuda::DeviceKernel;

constexpr int kThreads = cuda::kMaxThreads;
constexpr int kWarp = 32;

// The devices that communicators of this process run on: how many blocks each holds at once, and
// how many of them are reserved.
class Devices {
 public:
  static Devices& instance() {
    static Devices* const devices = new Devices;
    return *devices;
  }
  // Of `device`, the current one.
  Status reserve(int device, int blocks) {
    std::lock_guard lock(mutex_);
    Device& d = devices_[device];
    if (d.capacity == 0) TR_RETURN_IF_ERROR(load(device, &d.capacity));
    if (d.reserved + blocks > d.capacity) {
      return unsupported(
          "device " + std::to_string(device) + " holds " + std::to_string(d.capacity) +
          " blocks at once, of which the communicators of this process have reserved " +
          std::to_string(d.reserved) + "; this one needs " + std::to_string(blocks) +
          ": destroy some, or set TR_CUDA_CHANNELS to less");
    }
    d.reserved += blocks;
    return {};
  }
  void give_back(int device, int blocks) {
    std::lock_guard lock(mutex_);
    devices_[device].reserved -= blocks;
  }

 private:
  struct Device {
    int capacity = 0;  // 0: the kernels are not loaded
    int reserved = 0;
  };

  // CUDA loads a kernel when it is first used, and to do so may wait for all that runs on the
  // device: for a kernel that waits for this very rank, perhaps. So all kernels are loaded before
  // the first of them runs.
  static Status load(int device, int* capacity) {
    const auto error = static_cast<cudaError_t>(cuda::load_kernels(kThreads, capacity));
    const Status status =
        cuda_status(error, "loading the kernels on device " + std::to_string(device));
    if (error != cudaErrorNoKernelImageForDevice) return status;
    int major = 0, minor = 0;
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return status.with_context("this library was built without -Dgpu_archs=sm_" +
                               std::to_string(major * 10 + minor));
  }

  std::mutex mutex_;
  std::map<int, Device> devices_;
};

// The caller's current device comes back when a call of the library ends.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess || before_ == device) return;
    changed_ = cudaSetDevice(device) == cudaSuccess;
  }
  ~OnDevice() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// Host memory that kernels see: their reports, and the flag that tells them to give up.
struct Shared {
  std::uint32_t abort;
  DeviceReport reports[1];  // max_blocks of them
};

// Freeing pinned memory waits for all that runs on all devices, other communicators' kernels too,
// and those may wait for the rank that frees: so it is kept for the next communicator, as slabs
// are (transports/cuda_ipc/slab.hpp).
class SharedPool {
 public:
  static SharedPool& instance() {
    static SharedPool* const pool = new SharedPool;
    return *pool;
  }
  Result<Shared*> take(int blocks) {
    std::lock_guard lock(mutex_);
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
      if (it->blocks != blocks) continue;
      Shared* const found = it->shared;
      kept_.erase(it);
      return found;
    }
    const std::size_t bytes =
        sizeof(Shared) + sizeof(DeviceReport) * static_cast<std::size_t>(blocks);
    void* memory = nullptr;
    TR_RETURN_IF_ERROR(
        cuda_status(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
                    "cudaHostAlloc"));
    return static_cast<Shared*>(memory);
  }
  void give_back(Shared* shared, int blocks) {
    std::lock_guard lock(mutex_);
    kept_.push_back({shared, blocks});
  }

 private:
  struct Kept {
    Shared* shared;
    int blocks;
  };
  std::mutex mutex_;
  std::vector<Kept> kept_;
};

class CudaEngine final : public DeviceEngine {
 public:
  CudaEngine(std::unique_ptr<DeviceLinks> links, std::int64_t timeout_ms)
      : links_(std::move(links)), timeout_ms_(timeout_ms) {}
  ~CudaEngine() override;
  Status start();

  const DeviceLinks& links() const override { return *links_; }
  int max_blocks() const override { return max_blocks_; }
  Status launch(const Call& call, const DevicePlan& plan, std::uint64_t signature,
                void* stream) override;
  Result<bool> is_idle() override;
  Status drain() override;
  void set_timeout_ms(std::int64_t timeout_ms) override { timeout_ms_ = timeout_ms; }
  Status check() const override;
  void abort() override {
    std::atomic_ref(shared_->abort).store(1, std::memory_order_relaxed);  // kernels poll it
  }

 private:
  Status order_behind_last(cudaStream_t stream);
  Status wait_for_last();

  std::unique_ptr<DeviceLinks> links_;
  std::int64_t timeout_ms_;
  int max_blocks_ = 0;
  CudaStream own_;
  cudaEvent_t last_ = nullptr;          // after the last launch
  cudaStream_t last_stream_ = nullptr;  // where that was
  bool has_last_ = false;
  Shared* shared_ = nullptr;         // as the host sees it
  Shared* device_shared_ = nullptr;  // as kernels see it
};

Status CudaEngine::start() {
  const OnDevice on(links_->device());
  const DeviceLinkTable& table = links_->table();
  // A lane per rank at most (all-to-all), on one channel; or the trees' four on all.
  const int blocks = std::max(4 * table.channels, table.size);
  TR_RETURN_IF_ERROR(Devices::instance().reserve(links_->device(), blocks));
  max_blocks_ = blocks;
  TR_ASSIGN_OR_RETURN(own_, CudaStream::make());
  TR_RETURN_IF_ERROR(
      cuda_status(cudaEventCreateWithFlags(&last_, cudaEventDisableTiming), "cudaEventCreate"));
  TR_ASSIGN_OR_RETURN(shared_, SharedPool::instance().take(blocks));
  shared_->abort = 0;
  std::fill_n(shared_->reports, blocks, DeviceReport{});
  void* on_device = nullptr;
  TR_RETURN_IF_ERROR(
      cuda_status(cudaHostGetDevicePointer(&on_device, shared_, 0), "cudaHostGetDevicePointer"));
  device_shared_ = static_cast<Shared*>(on_device);
  return {};
}

CudaEngine::~CudaEngine() {
  const OnDevice on(links_->device());
  const bool quiet = wait_for_last().ok() || cudaDeviceSynchronize() == cudaSuccess;
  if (last_ != nullptr) (void)cudaEventDestroy(last_);
  // Rather lost than written to by a kernel of its last owner.
  if (shared_ != nullptr && quiet) SharedPool::instance().give_back(shared_, max_blocks_);
  if (max_blocks_ > 0) Devices::instance().give_back(links_->device(), max_blocks_);
}

// The links serve one operation at a time. A captured graph keeps its own order.
Status CudaEngine::order_behind_last(cudaStream_t stream) {
  // Another stream of the caller's may have the handle of one that was destroyed.
  if (!has_last_ || (stream == last_stream_ && stream == own_.get())) return {};
  return cuda_status(cudaStreamWaitEvent(stream, last_, 0), "cudaStreamWaitEvent");
}

Status CudaEngine::launch(const Call& call, const DevicePlan& plan, std::uint64_t signature,
                          void* stream) {
  TR_RETURN_IF_ERROR(check());
  const DeviceKernel* kernel = cuda::find_kernel(call.collective, plan.algorithm, plan.protocol);
  if (kernel == nullptr) return internal_error("no kernel for a plan of the device");
  const DeviceLinkTable& table = links_->table();
  DeviceCall c;
  c.collective = call.collective;
  c.size = table.size;
  c.root = call.root;
  c.type = call.type;
  c.op = call.op;
  c.wire_is_in = call.wire_is_in;
  c.scaled = call.scaled;
  c.factor = call.factor;
  c.divisor = call.divisor;
  c.in = call.in;
  c.out = call.out;
  c.in_part = call.in_part;
  c.out_part = call.out_part;
  c.slice_elems = plan.slice_elems;
  c.slices_per_round = plan.slices_per_round;
  c.channels = static_cast<std::uint32_t>(plan.channels);
  c.signature = signature;
  c.links = table;
  c.rank = links_->rank();
  c.reports = device_shared_->reports;
  c.abort = &device_shared_->abort;
  c.timeout_ns = static_cast<std::uint64_t>(timeout_ms_) * 1'000'000;
  c.tables_from = call.tables.data();
  std::copy(call.tables.begin(), call.tables.end(), c.tables);
  std::uint64_t longest = 0;
  for (int i = 0; i < plan.chunks; ++i) {
    longest = std::max({longest, call.in_part.elems(i), call.out_part.elems(i)});
  }
  const std::uint64_t slices = (longest + plan.slice_elems - 1) / plan.slice_elems;
  c.rounds = (slices + plan.slices_per_round - 1) / plan.slices_per_round;
  if (c.rounds == 0) return {};

  const std::uint64_t slice_bytes =
      std::min<std::uint64_t>(longest, plan.slice_elems) * type_bytes(call.type);
  const auto wanted = static_cast<int>(std::min<std::uint64_t>(slice_bytes / 16, kThreads));
  const int threads = std::clamp((wanted + kWarp - 1) / kWarp * kWarp, kWarp, kThreads);
  const OnDevice on(links_->device());
  const cudaStream_t s = stream != nullptr ? static_cast<cudaStream_t>(stream) : own_.get();
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  TR_RETURN_IF_ERROR(cuda_status(cudaStreamIsCapturing(s, &capture), "cudaStreamIsCapturing"));
  const bool captured = capture != cudaStreamCaptureStatusNone;
  if (!captured) TR_RETURN_IF_ERROR(order_behind_last(s));
  TR_RETURN_IF_ERROR(cuda_status(static_cast<cudaError_t>(cuda::start_kernel(
                                     *kernel, c, plan.lanes * plan.channels, threads, s)),
                                 std::string("launching the ") + plan.algorithm + " kernel"));
  if (captured) return {};
  const Status recorded = cuda_status(cudaEventRecord(last_, s), "cudaEventRecord");
  if (!recorded.ok()) {
    // Nothing would wait for this kernel any more, and it uses the caller's buffers and ours.
    abort();
    (void)cudaStreamSynchronize(s);
    return recorded;
  }
  last_stream_ = s;
  has_last_ = true;
  return {};
}

// Ends, because every wait of a kernel does.
Status CudaEngine::wait_for_last() {
  if (!has_last_) return {};
  return cuda_status(cudaEventSynchronize(last_), "cudaEventSynchronize");
}

Status CudaEngine::drain() {
  TR_RETURN_IF_ERROR(wait_for_last());
  return check();
}

Result<bool> CudaEngine::is_idle() { return query_device_stream(own_.get()); }

Status CudaEngine::check() const {
  for (int i = 0; i < max_blocks_; ++i) {
    DeviceReport& r = shared_->reports[i];
    const std::uint32_t state = std::atomic_ref(r.state).load(std::memory_order_acquire);
    if (state == DeviceReport::kFine) continue;
    const std::string where =
        std::string(r.for_credit != 0 ? "room for message " : "message ") +
        std::to_string(r.number) + (r.for_credit != 0 ? " to rank " : " from rank ") +
        std::to_string(r.peer) + " (" + algos::verb_name(static_cast<algos::Verb>(r.verb)) +
        ", chunk " + std::to_string(r.chunk) + ", round " + std::to_string(r.round) + ", channel " +
        std::to_string(r.channel) + ", block " + std::to_string(i) + ")";
    switch (state) {
      case DeviceReport::kTimeout:
        return Status(Code::kTimeout, "a kernel waited in vain for " + where);
      case DeviceReport::kMismatch:
        return Status(Code::kMismatch,
                      "a kernel got a message of a different operation, count or type: " + where);
      default:
        return Status(Code::kAborted,
                      "the communicator was aborted while a kernel waited for " + where);
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<DeviceEngine>> make_device_engine(std::unique_ptr<DeviceLinks> links,
                                                         std::int64_t timeout_ms) {
  auto engine = std::make_unique<CudaEngine>(std::move(links), timeout_ms);
  TR_RETURN_IF_ERROR(engine->start());
  return std::unique_ptr<DeviceEngine>(std::move(engine));
}

bool device_has(Collective collective, const char* algorithm, DeviceProtocol protocol) {
  return cuda::find_kernel(collective, algorithm, protocol) != nullptr;
}

bool is_device_memory(const void* pointer) {
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

Status synchronize_device_stream(void* stream) {
  return cuda_status(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)),
                     "cudaStreamSynchronize");
}

Result<bool> query_device_stream(void* stream) {
  const cudaError_t error = cudaStreamQuery(static_cast<cudaStream_t>(stream));
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  TR_RETURN_IF_ERROR(cuda_status(error, "cudaStreamQuery"));
  return true;
}

}  // namespace treering
