// The device engine over CUDA: from a call to a kernel launch.
#include <algorithm>
#include <atomic>
#include <cuda_runtime.h>
#include <string>
#include <utility>
#include <vector>

#include "algos/cuda/call.hpp"
#include "algos/cuda/kernels.hpp"
#include "algos/prims.hpp"
#include "core/cuda_device.hpp"
#include "core/cuda_stream.hpp"
#include "engine/cuda_batch.hpp"
#include "engine/cuda_copy_engine.hpp"
#include "engine/cuda_resources.hpp"
#include "engine/cuda_turnstile.hpp"
#include "engine/device_engine.hpp"
#include "engine/device_room.hpp"

namespace treering {
namespace {

using cuda::DeviceContext;
using cuda::DeviceMessage;

constexpr int kThreads = cuda::kMaxThreads;
constexpr int kWarp = 32;
static_assert(DeviceEngine::kMaxMessages == cuda::kMostMessages);

std::string describe(const DeviceReport& r, int block) {
  std::string text = std::string(r.for_credit != 0 ? "room for message " : "message ") +
                     std::to_string(r.number) + (r.for_credit != 0 ? " to rank " : " from rank ") +
                     std::to_string(r.peer) + " (";
  if (r.elems > 0) {
    text += std::string(r.for_credit != 0 ? "send to" : "receive from") + " rank " +
            std::to_string(r.peer) + " of " + std::to_string(r.elems) + " " + type_name(r.type) +
            ", slice ";
  } else {
    text += std::string(algos::verb_name(static_cast<algos::Verb>(r.verb))) + ", chunk " +
            std::to_string(r.chunk) + ", round ";
  }
  text += std::to_string(r.round) + ", channel " + std::to_string(r.channel) + ", block " +
          std::to_string(block);
  if (r.elems > 0) return text + ")";
  return text + ", " + collective_name(r.collective) + ", call " + std::to_string(r.call) +
         " of the kernel)";
}

class CudaEngine final : public DeviceEngine {
 public:
  CudaEngine(std::unique_ptr<DeviceLinks> links, std::int64_t timeout_ms)
      : links_(std::move(links)), timeout_ms_(timeout_ms) {}
  ~CudaEngine() override;
  Status start();

  const DeviceLinks& links() const override { return *links_; }
  int max_blocks() const override { return max_blocks_; }
  Status launch(std::span<const CollectiveCall> calls, void* stream) override;
  Status launch_messages(std::span<const MessageCall> calls,
                         std::span<void* const> streams) override;
  Status start_copies() override;
  Status check_copies() override;
  Status copy(const CopyCall& call, void* stream) override;
  void set_watch(std::function<void()> watch) override {
    if (copies_ != nullptr) copies_->set_watch(std::move(watch));
  }
  Result<bool> is_idle() override;
  Status drain() override;
  void set_timeout_ms(std::int64_t timeout_ms) override {
    timeout_ms_ = timeout_ms;
    if (copies_ != nullptr) copies_->set_timeout_ms(timeout_ms);
  }
  Status check() const override;
  void abort() override {
    std::atomic_ref(shared_->abort).store(1, std::memory_order_relaxed);  // kernels poll it
    if (copies_ != nullptr) copies_->release();
  }

 private:
  cudaStream_t stream_or_own(void* stream) const {
    return stream != nullptr ? static_cast<cudaStream_t>(stream) : own_.get();
  }
  DeviceContext context() const;
  Status start_batch(const CallBatch& batch, void* stream);
  // Runs start(stream), which enqueues something, when its turn comes.
  template <class Start>
  Status take_turn(Turnstile& turnstile, cudaStream_t stream, Start start);
  // `stream` goes on when `before` is where it is now.
  Status join(cudaStream_t stream, cudaStream_t before);
  Status wait_for_last();
  int reserved_blocks() const { return max_blocks_ + message_blocks_; }

  std::unique_ptr<DeviceLinks> links_;
  std::int64_t timeout_ms_;
  int max_blocks_ = 0;
  int message_blocks_ = 0;
  bool has_reserved_ = false;
  CudaStream own_;
  // Collectives and messages have links and blocks of their own: neither waits for the other.
  Turnstile collectives_, messages_;
  cudaEvent_t joint_ = nullptr;
  SharedWithKernels* shared_ = nullptr;         // as the host sees it
  SharedWithKernels* device_shared_ = nullptr;  // as kernels see it
  std::unique_ptr<CopyEngine> copies_;          // nullptr: there are none
};

int threads_for(std::uint64_t slice_bytes) {
  const auto wanted = static_cast<int>(std::min<std::uint64_t>(slice_bytes / 16, kThreads));
  return std::clamp((wanted + kWarp - 1) / kWarp * kWarp, kWarp, kThreads);
}

Status CudaEngine::start() {
  const OnDevice on(links_->device());
  const DeviceLinkTable& table = links_->table();
  const RankBlocks blocks = blocks_of_rank(table.channels, table.size);
  max_blocks_ = blocks.collectives;
  message_blocks_ = blocks.messages;
  TR_RETURN_IF_ERROR(BlockBudget::instance().reserve(links_->device(), reserved_blocks()));
  has_reserved_ = true;
  TR_ASSIGN_OR_RETURN(own_, CudaStream::make());
  TR_RETURN_IF_ERROR(collectives_.start());
  TR_RETURN_IF_ERROR(messages_.start());
  TR_RETURN_IF_ERROR(
      cuda_status(cudaEventCreateWithFlags(&joint_, cudaEventDisableTiming), "cudaEventCreate"));
  TR_ASSIGN_OR_RETURN(shared_, SharedPool::instance().take(reserved_blocks()));
  shared_->abort = 0;
  shared_->awaited = shared_->copies_done = 0;
  std::fill_n(shared_->reports, reserved_blocks(), DeviceReport{});
  void* on_device = nullptr;
  TR_RETURN_IF_ERROR(
      cuda_status(cudaHostGetDevicePointer(&on_device, shared_, 0), "cudaHostGetDevicePointer"));
  device_shared_ = static_cast<SharedWithKernels*>(on_device);
  return {};
}

CudaEngine::~CudaEngine() {
  const OnDevice on(links_->device());
  const bool quiet = wait_for_last().ok() || cudaDeviceSynchronize() == cudaSuccess;
  copies_.reset();
  if (joint_ != nullptr) (void)cudaEventDestroy(joint_);
  // Rather lost than written to by a kernel of its last owner.
  if (shared_ != nullptr && quiet) SharedPool::instance().give_back(shared_, reserved_blocks());
  if (has_reserved_) BlockBudget::instance().give_back(links_->device(), reserved_blocks());
}

DeviceContext CudaEngine::context() const {
  DeviceContext c;
  c.links = links_->table();
  c.size = c.links.size;
  c.rank = links_->rank();
  c.reports = device_shared_->reports;
  c.abort = &device_shared_->abort;
  c.timeout_ns = static_cast<std::uint64_t>(timeout_ms_) * 1'000'000;
  return c;
}

template <class Start>
Status CudaEngine::take_turn(Turnstile& turnstile, cudaStream_t stream, Start start) {
  // A captured graph keeps its own order.
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  TR_RETURN_IF_ERROR(cuda_status(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing"));
  const bool captured = capture != cudaStreamCaptureStatusNone;
  if (!captured) TR_RETURN_IF_ERROR(turnstile.order(stream, own_.get()));
  const Status started = start(stream);
  if (captured) return started;
  const Status marked = turnstile.mark(stream);  // what failed may have enqueued a part
  if (!marked.ok()) {
    // Nothing would wait for this any more, and it uses the caller's buffers and ours.
    abort();
    (void)cudaStreamSynchronize(stream);
  }
  return started.ok() ? marked : started;
}

// Of a function that launches a kernel.
Status launched(int error, const char* what) {
  return cuda_status(static_cast<cudaError_t>(error),
                     std::string("launching the kernel of ") + what);
}

Status CudaEngine::start_batch(const CallBatch& batch, void* stream) {
  if (batch.empty()) return {};
  const OnDevice on(links_->device());
  return take_turn(collectives_, stream_or_own(stream), [&](cudaStream_t s) {
    return launched(cuda::start_calls(batch.protocol(), context(), batch.list(),
                                      threads_for(batch.longest_slice_bytes()), s),
                    "collectives");
  });
}

Status CudaEngine::launch(std::span<const CollectiveCall> calls, void* stream) {
  TR_RETURN_IF_ERROR(check());
  CallBatch batch(*links_, max_blocks_);
  for (const CollectiveCall& call : calls) {
    TR_ASSIGN_OR_RETURN(const bool added, batch.add(call));
    if (added) continue;
    TR_RETURN_IF_ERROR(start_batch(batch, stream));
    batch.clear();
    TR_RETURN_IF_ERROR(batch.add(call).status());
  }
  return start_batch(batch, stream);
}

Status CudaEngine::join(cudaStream_t stream, cudaStream_t before) {
  if (stream == before) return {};
  TR_RETURN_IF_ERROR(cuda_status(cudaEventRecord(joint_, before), "cudaEventRecord"));
  return cuda_status(cudaStreamWaitEvent(stream, joint_, 0), "cudaStreamWaitEvent");
}

Status CudaEngine::launch_messages(std::span<const MessageCall> calls,
                                   std::span<void* const> streams) {
  TR_RETURN_IF_ERROR(check());
  std::vector<DeviceMessage> messages;
  messages.reserve(calls.size());
  std::uint64_t longest_slice = 0;
  for (const MessageCall& m : calls) {
    const Call& call = *m.call;
    if (call.count == 0) continue;
    messages.push_back({call.is_send ? const_cast<std::byte*>(call.in) : call.out, call.count,
                        m.signature, static_cast<std::uint32_t>(m.slice_elems),
                        static_cast<std::int16_t>(call.root), call.type, call.is_send});
    longest_slice = std::max(
        longest_slice, std::min<std::uint64_t>(call.count, m.slice_elems) * type_bytes(call.type));
  }
  if (messages.empty()) return {};
  // Every rank begins with another peer: sends to the next ranks, receives from those before.
  DeviceContext c = context();
  const auto lane = [&](const DeviceMessage& m) {
    const int distance = algos::mod(m.is_send ? m.peer - c.rank : c.rank - m.peer, c.size);
    return 2 * distance + (m.is_send ? 0 : 1);
  };
  std::stable_sort(messages.begin(), messages.end(),
                   [&](const auto& a, const auto& b) { return lane(a) < lane(b); });
  c.reports += max_blocks_;
  const OnDevice on(links_->device());
  const cudaStream_t s = stream_or_own(streams.front());
  // As if the kernel ran on each of the streams.
  for (void* other : streams) TR_RETURN_IF_ERROR(join(s, stream_or_own(other)));
  TR_RETURN_IF_ERROR(take_turn(messages_, s, [&](cudaStream_t on_stream) {
    return launched(
        cuda::start_messages(c, messages, message_blocks_, threads_for(longest_slice), on_stream),
        "sends and receives");
  }));
  for (void* other : streams) TR_RETURN_IF_ERROR(join(stream_or_own(other), s));
  return {};
}

Status CudaEngine::start_copies() {
  const OnDevice on(links_->device());
  TR_ASSIGN_OR_RETURN(copies_, CopyEngine::make(*links_, *shared_, device_shared_, timeout_ms_));
  return copies_->say_hello();
}

Status CudaEngine::check_copies() {
  const OnDevice on(links_->device());
  return copies_ != nullptr ? copies_->check_hellos() : internal_error("copies did not start");
}

Status CudaEngine::copy(const CopyCall& call, void* stream) {
  TR_RETURN_IF_ERROR(check());
  if (copies_ == nullptr) return internal_error("copies without a copy engine");
  if (call.call->count == 0) return {};
  const OnDevice on(links_->device());
  return take_turn(collectives_, stream_or_own(stream),
                   [&](cudaStream_t s) { return copies_->enqueue(call, s); });
}

Status CudaEngine::wait_for_last() {
  const Status collectives = collectives_.wait();
  const Status messages = messages_.wait();
  return collectives.ok() ? messages : collectives;
}

Status CudaEngine::drain() {
  TR_RETURN_IF_ERROR(wait_for_last());
  return check();
}

Result<bool> CudaEngine::is_idle() { return query_device_stream(own_.get()); }

Status CudaEngine::check() const {
  if (copies_ != nullptr) TR_RETURN_IF_ERROR(copies_->check());
  for (int i = 0; i < reserved_blocks(); ++i) {
    DeviceReport& r = shared_->reports[i];
    const std::uint32_t state = std::atomic_ref(r.state).load(std::memory_order_acquire);
    if (state == DeviceReport::kFine) continue;
    // Collectives' blocks come first; each kernel counts its own from 0.
    const std::string where = describe(r, i < max_blocks_ ? i : i - max_blocks_);
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
  return cuda::find_algorithm(collective, algorithm, protocol) >= 0;
}

bool has_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count > 0;
  (void)cudaGetLastError();
  return false;
}

bool is_device_memory(const void* pointer) {
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
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
