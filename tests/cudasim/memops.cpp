// Stream memory operations: a stream writes a word, or goes on when a word has a value.
#include <atomic>
#include <cstdio>
#include <cuda.h>
#include <sched.h>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include "block.hpp"
#include "driver.hpp"
#include "report.hpp"

using namespace cudasim;

namespace {

// CUDA's runtime has no name for it.
constexpr auto kMemOpNode = static_cast<cudaGraphNodeType>(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);

template <class Word>
bool holds(Word now, Word value, unsigned how) {
  switch (how) {
    case CU_STREAM_WAIT_VALUE_GEQ:  // cyclic
      return static_cast<std::make_signed_t<Word>>(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & value) != 0;
    default:
      return static_cast<Word>(~(now | value)) != 0;
  }
}

// Other processes may write the word, so it is polled; for ever if nobody does, which is a hang as
// a kernel's is.
template <class Word>
void wait_until(Word* word, Word value, unsigned how) {
  char where[32];
  std::snprintf(where, sizeof where, "%p", static_cast<void*>(word));
  const Note note(std::string("a stream waits for the word at ") + where);
  const double since = now_s();
  for (unsigned round = 1;; ++round) {
    if (holds(std::atomic_ref(*word).load(std::memory_order_acquire), value, how)) return;
    if (round % 64 == 0 && now_s() - since > settings().hang_s) {
      report_hang("a stream waits for a word that nobody writes");
    }
    static_cast<void>(round % 256 == 0 ? usleep(50) : sched_yield());
  }
}

struct MemOp {
  bool is_wait = false;
  bool is_wide = false;  // 64 bits
  CUdeviceptr address = 0;
  std::uint64_t value = 0;
  unsigned flags = 0;
};

// Without CU_STREAM_WAIT_VALUE_FLUSH, which few platforms have.
bool is_known(const MemOp& op) {
  return op.is_wait ? op.flags <= CU_STREAM_WAIT_VALUE_NOR
                    : op.flags == CU_STREAM_WRITE_VALUE_DEFAULT;
}

// May operations of `stream` touch the word? Not pageable memory, nor another device's that was not
// opened.
bool can_touch(Lock& lock, const Stream& stream, const MemOp& op) {
  const std::size_t bytes = op.is_wide ? 8 : 4;
  if (op.address % bytes != 0) return false;
  const Place place = place_of(lock, reinterpret_cast<void*>(op.address));
  if (place.kind == Place::Kind::kNone || op.address + bytes > place.base + place.bytes)
    return false;
  const std::uint32_t peers = runtime().devices[static_cast<std::size_t>(stream.device)].peers;
  return place.kind != Place::Kind::kDevice || place.device == stream.device ||
         (peers >> place.device & 1) != 0;
}

template <class Word>
void run(const MemOp& op) {
  auto* word = reinterpret_cast<Word*>(op.address);
  const auto value = static_cast<Word>(op.value);
  if (op.is_wait) {
    wait_until(word, value, op.flags);
  } else {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
}

CUresult enqueue(const char* name, CUstream handle, std::vector<MemOp> ops) {
  return driver(name, [&](Lock& lock) {
    if (!settings().mem_ops) return CUDA_ERROR_NOT_SUPPORTED;
    Stream* stream = find_stream(lock, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    for (const MemOp& op : ops) {
      if (!is_known(op) || !can_touch(lock, *stream, op)) return CUDA_ERROR_INVALID_VALUE;
    }
    return driver_error(submit(lock, *stream, kMemOpNode, [ops = std::move(ops)] {
      for (const MemOp& op : ops) op.is_wide ? run<std::uint64_t>(op) : run<std::uint32_t>(op);
    }));
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                      unsigned flags) {
  return enqueue("cuStreamWriteValue32", stream, {{false, false, address, value, flags}});
}
CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned flags) {
  return enqueue("cuStreamWriteValue64", stream, {{false, true, address, value, flags}});
}
CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                     unsigned flags) {
  return enqueue("cuStreamWaitValue32", stream, {{true, false, address, value, flags}});
}
CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                     unsigned flags) {
  return enqueue("cuStreamWaitValue64", stream, {{true, true, address, value, flags}});
}

// One after another, as one operation of the stream.
CUresult CUDAAPI cuStreamBatchMemOp(CUstream stream, unsigned count,
                                    CUstreamBatchMemOpParams* params, unsigned flags) {
  if (flags != 0 || count == 0 || count >= 256) return CUDA_ERROR_INVALID_VALUE;
  std::vector<MemOp> ops;
  for (unsigned i = 0; i < count; ++i) {
    const auto& wait = params[i].waitValue;  // a write has the same layout
    switch (wait.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        ops.push_back({wait.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32, false, wait.address,
                       wait.value, wait.flags});
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        ops.push_back({wait.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64, true, wait.address,
                       wait.value64, wait.flags});
        break;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return enqueue("cuStreamBatchMemOp", stream, std::move(ops));
}

}  // extern "C"
