#include "engine/cuda_copy_engine.hpp"

#include <algorithm>
#include <string>
#include <system_error>
#include <unistd.h>

#include "algos/registry.hpp"
#include "core/cuda_device.hpp"

namespace treering {
namespace {

using algos::Operand;
using algos::Schedule;
using algos::Step;
using std::chrono::milliseconds;

constexpr int kStageBits = 3;
static_assert(kStreamStages < 1 << kStageBits);
constexpr int kHelloStage = kStreamStages - 1;  // no call has so many

// What the s-th publish of a call writes: never 0, and it tells s.
std::uint64_t value_of(std::uint64_t signature, int stage) {
  return signature << kStageBits | static_cast<std::uint64_t>(stage + 1);
}
int stage_of(std::uint64_t value) { return static_cast<int>(value & ((1u << kStageBits) - 1)) - 1; }
std::uint64_t hello_of(int from, int to) {
  return value_of(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to),
                  kHelloStage);
}

bool is_signal(const Step& step) {
  return step.verb == Verb::kPublish || step.verb == Verb::kAwait;
}

// Where operands of a call lie.
class Places {
 public:
  explicit Places(const CopyCall& c)
      : c_(c), call_(*c.call), elem_bytes_(type_bytes(call_.type)), token_(call_.token) {}

  std::uint64_t bytes_of(const Operand& input, const Operand& output) const {
    return elem_bytes_ * (input.space == Space::kIn ? call_.in_part.elems(input.chunk)
                                                    : call_.out_part.elems(output.chunk));
  }
  Result<std::byte*> address(const Operand& o, std::uint64_t bytes) const {
    const std::uint64_t in = elem_bytes_ * call_.in_part.offset(o.chunk);
    const std::uint64_t out = elem_bytes_ * call_.out_part.offset(o.chunk);
    switch (o.space) {
      case Space::kIn:
        return const_cast<std::byte*>(call_.in) + in;
      case Space::kOut:
        return call_.out + out;
      case Space::kPeerIn:
        // In place, a peer's part lies in its receive buffer, where the peer's rank says.
        if (c_.in_place)
          return of_peer(o.peer, token_.out_window, token_.out_offset_bytes + out, bytes);
        return of_peer(o.peer, token_.in_window, token_.in_offset_bytes + in, bytes);
      case Space::kPeerOut:
        return of_peer(o.peer, token_.out_window, token_.out_offset_bytes + out, bytes);
      default:
        return internal_error("copy engines cannot move this");
    }
  }

 private:
  Result<std::byte*> of_peer(int peer, std::uint32_t window, std::uint64_t offset,
                             std::uint64_t bytes) const {
    const WindowMap& map = (*c_.windows)[window];
    const auto p = static_cast<std::size_t>(peer);
    if (offset + bytes <= map.bytes[p]) return map.base[p] + offset;
    return Status(Code::kMismatch,
                  "window " + std::to_string(window) + " of rank " + std::to_string(peer) +
                      " has " + std::to_string(map.bytes[p]) + " bytes, and this rank's call " +
                      "reaches up to byte " + std::to_string(offset + bytes) + " of it");
  }

  const CopyCall& c_;
  const Call& call_;
  const std::uint64_t elem_bytes_;
  const WindowToken& token_;
};

}  // namespace

CopyEngine::CopyEngine(const DeviceLinks& links, SharedWithKernels& shared,
                       SharedWithKernels* on_device, std::int64_t timeout_ms)
    : links_(links), shared_(shared), on_device_(on_device), timeout_ms_(timeout_ms) {}

Result<std::unique_ptr<CopyEngine>> CopyEngine::make(const DeviceLinks& links,
                                                     SharedWithKernels& shared,
                                                     SharedWithKernels* on_device,
                                                     std::int64_t timeout_ms) {
  std::unique_ptr<CopyEngine> engine(new CopyEngine(links, shared, on_device, timeout_ms));
  TR_ASSIGN_OR_RETURN(engine->words_, StreamWords::make(links.device()));
  TR_ASSIGN_OR_RETURN(engine->urgent_, CudaStream::make_urgent());
  return engine;
}

CopyEngine::~CopyEngine() {
  if (!thread_.joinable()) return;
  if (process_ != ::getpid()) {  // a forked child has no such thread
    thread_.detach();
    return;
  }
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::uint64_t* CopyEngine::word(int owner, int stage, int writer) const {
  return links_.stream_words(owner) + stage * links_.table().size + writer;
}

Status CopyEngine::say_hello() {
  for (int r = 0; r < links_.table().size; ++r) {
    if (links_.stream_words(r) != nullptr) continue;
    return unsupported("the GPU of rank " + std::to_string(r) + " is not reached directly");
  }
  StreamWords::Batch batch;
  for (int r = 0; r < links_.table().size; ++r) {
    batch.write(word(r, kHelloStage, links_.rank()), hello_of(links_.rank(), r));
  }
  TR_RETURN_IF_ERROR(words_.submit(batch, urgent_.get()));
  return urgent_.wait();
}

Status CopyEngine::check_hellos() {
  for (int r = 0; r < links_.table().size; ++r) {
    std::uint64_t found = 0;
    TR_RETURN_IF_ERROR(urgent_.copy(&found, word(links_.rank(), kHelloStage, r), sizeof found));
    if (found == hello_of(r, links_.rank())) continue;
    return unsupported("what a stream of rank " + std::to_string(r) +
                       " wrote to this rank's device memory did not arrive");
  }
  return {};
}

const Schedule& CopyEngine::schedule_of(const algos::Algorithm& algorithm, int root) {
  const auto [it, fresh] = schedules_.try_emplace({&algorithm, root});
  if (fresh) it->second = algos::record(algorithm, links_.rank(), links_.table().size, root);
  return it->second;
}

Result<std::vector<CopyEngine::Move>> CopyEngine::moves_of(const CopyCall& call,
                                                           const Schedule& schedule) const {
  const Places places(call);
  std::vector<Move> moves;
  for (const Step& step : schedule.steps) {
    if (is_signal(step)) continue;
    const Operand& from = schedule.inputs(step).front();
    const Operand& to = schedule.outputs(step).front();
    if (step.inputs != 1 || step.outputs != 1 || to.space != Space::kOut) {
      return internal_error("copy engines only fill this rank's own receive buffer");
    }
    Move m;
    m.bytes = places.bytes_of(from, to);
    TR_ASSIGN_OR_RETURN(m.from, places.address(from, m.bytes));
    TR_ASSIGN_OR_RETURN(m.to, places.address(to, m.bytes));
    moves.push_back(m);
  }
  return moves;
}

void CopyEngine::publish(StreamWords::Batch& batch, int stage, std::uint64_t value) const {
  for (int r = 0; r < links_.table().size; ++r) {
    if (r != links_.rank()) batch.write(word(r, stage, links_.rank()), value);
  }
}

void CopyEngine::await_all(StreamWords::Batch& batch, int stage, std::uint64_t value) const {
  const auto own_words = [&](auto&& visit) {
    for (int r = 0; r < links_.table().size; ++r) {
      if (r != links_.rank()) visit(word(links_.rank(), stage, r));
    }
  };
  batch.write(&on_device_->awaited, value);  // the thread looks there
  own_words([&](std::uint64_t* w) { batch.wait(w, value); });
  batch.write(&on_device_->awaited, 0);
  own_words([&](std::uint64_t* w) { batch.write(w, 0); });
}

Status CopyEngine::enqueue(const CopyCall& call, cudaStream_t stream) {
  const Schedule& schedule = schedule_of(*call.algorithm, call.call->root);
  TR_ASSIGN_OR_RETURN(const std::vector<Move> moves, moves_of(call, schedule));
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  TR_RETURN_IF_ERROR(cuda_status(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing"));
  const bool is_captured = capture != cudaStreamCaptureStatusNone;
  TR_RETURN_IF_ERROR(start_thread());
  std::uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    is_captured_ |= is_captured;
    if (!is_captured) number = ++issued_;
  }
  wake_.notify_all();

  StreamWords::Batch batch;
  int published = 0, awaited = 0;  // so many of each
  auto move = moves.begin();
  for (const Step& step : schedule.steps) {
    if (step.verb == Verb::kPublish) {
      if (published == kHelloStage) return internal_error("too many signals in one call");
      publish(batch, published, value_of(call.signature, published));
      ++published;
    } else if (step.verb == Verb::kAwait) {
      if (awaited == published) continue;  // its peer was awaited with the others
      awaited = published;
      await_all(batch, awaited - 1, value_of(call.signature, awaited - 1));
    } else {
      TR_RETURN_IF_ERROR(words_.submit(batch, stream));
      const Move& m = *move++;
      if (m.bytes == 0 || m.to == m.from) continue;
      TR_RETURN_IF_ERROR(
          cuda_status(cudaMemcpyAsync(m.to, m.from, m.bytes, cudaMemcpyDeviceToDevice, stream),
                      "cudaMemcpyAsync"));
    }
  }
  if (!is_captured) batch.write(&on_device_->copies_done, number);
  return words_.submit(batch, stream);
}

Status CopyEngine::check() const {
  return has_failed_.load(std::memory_order_acquire) ? failure_ : Status{};  // pairs with fail
}

void CopyEngine::release() {
  released_.store(true, std::memory_order_release);  // pairs with look
  wake_.notify_all();
}

void CopyEngine::set_watch(std::function<void()> watch) {
  std::lock_guard lock(watch_mutex_);
  watch_ = std::move(watch);
}

// --- The thread

Status CopyEngine::start_thread() {
  if (thread_.joinable()) return {};
  process_ = ::getpid();
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    return system_error("cannot start the thread that watches copies (see ulimit -u, -v)",
                        e.code().value());
  }
  return {};
}

bool CopyEngine::is_busy() const {
  // Pairs with the stream's write.
  return issued_ != std::atomic_ref(shared_.copies_done).load(std::memory_order_acquire);
}

void CopyEngine::run() {
  const OnDevice on(links_.device());
  // What this thread does breaks no capture of another.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!is_busy() && !is_captured_) {
      wake_.wait(lock, [&] { return stop_ || is_busy() || is_captured_; });
      continue;
    }
    const bool hurries = released_.load(std::memory_order_relaxed);
    wake_.wait_for(lock, milliseconds(hurries ? 1 : awaited_ != 0 || is_busy() ? 10 : 50));
    lock.unlock();
    look();
    lock.lock();
  }
}

void CopyEngine::look() {
  const std::uint64_t awaited =
      std::atomic_ref(shared_.awaited).load(std::memory_order_acquire);  // pairs with the stream
  if (awaited != awaited_) {
    awaited_ = awaited;
    since_ = Clock::now();
  }
  if (awaited == 0) return;
  if (released_.load(std::memory_order_acquire)) return write_everything(awaited);
  if (Clock::now() - since_ > milliseconds(timeout_ms_.load(std::memory_order_relaxed))) {
    fail(awaited);
  }
  std::lock_guard lock(watch_mutex_);
  if (watch_) {
    watch_();
  } else if (has_failed_.load(std::memory_order_relaxed)) {
    release();
  }
}

void CopyEngine::fail(std::uint64_t awaited) {
  if (has_failed_.load(std::memory_order_relaxed)) return;
  const int stage = stage_of(awaited);
  failure_ = Status(Code::kTimeout, "copies waited in vain for " + missing(awaited) +
                                        (stage == 0 ? " to begin the call"
                                                    : " to come to signal " +
                                                          std::to_string(stage) + " of the call"));
  has_failed_.store(true, std::memory_order_release);  // pairs with check
}

// The ranks that have not written what is awaited.
std::string CopyEngine::missing(std::uint64_t awaited) {
  const auto size = static_cast<std::size_t>(links_.table().size);
  const std::string unknown = "another rank";
  if (cudaMemcpyAsync(shared_.landing, word(links_.rank(), stage_of(awaited), 0),
                      size * sizeof shared_.landing[0], cudaMemcpyDeviceToHost,
                      urgent_.get()) != cudaSuccess) {
    return unknown;
  }
  const Clock::time_point start = Clock::now();
  while (cudaStreamQuery(urgent_.get()) == cudaErrorNotReady) {
    (void)cudaGetLastError();
    if (Clock::now() - start > milliseconds(100)) return unknown;
    std::this_thread::sleep_for(milliseconds(1));
  }
  std::string ranks;
  for (std::size_t r = 0; r < size; ++r) {
    if (static_cast<int>(r) == links_.rank() || shared_.landing[r] == awaited) continue;
    ranks += (ranks.empty() ? "rank " : ", rank ") + std::to_string(r);
  }
  return ranks.empty() ? unknown : ranks;
}

// What all peers would have written.
void CopyEngine::write_everything(std::uint64_t value) {
  if (cudaStreamQuery(urgent_.get()) != cudaSuccess) {  // the last time is not done yet
    (void)cudaGetLastError();
    return;
  }
  StreamWords::Batch batch;
  for (int r = 0; r < links_.table().size; ++r) {
    batch.write(word(links_.rank(), stage_of(value), r), value);
  }
  (void)words_.submit(batch, urgent_.get());
}

}  // namespace treering
