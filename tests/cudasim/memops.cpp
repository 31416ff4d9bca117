// Stream memory operations: a stream writes a word, or goes on when a word has a value.
#include <atomic>
#include <cstdio>
#include <cuda.h>
#include <sched.h>
#include <type_traits>
#include <unistd.h>

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

// May operations of `stream` touch the word? Not pageable memory, nor another device's that was not
// opened.
bool can_touch(Lock& lock, const Stream& stream, CUdeviceptr address, std::size_t bytes) {
  if (address % bytes != 0) return false;
  const Place place = place_of(lock, reinterpret_cast<void*>(address));
  if (place.kind == Place::Kind::kNone || address + bytes > place.base + place.bytes) return false;
  const std::uint32_t peers = runtime().devices[static_cast<std::size_t>(stream.device)].peers;
  return place.kind != Place::Kind::kDevice || place.device == stream.device ||
         (peers >> place.device & 1) != 0;
}

template <class Word, class Run>
CUresult mem_op(const char* name, CUstream handle, CUdeviceptr address, bool is_known, Run run) {
  return driver(name, [&](Lock& lock) {
    if (!settings().mem_ops) return CUDA_ERROR_NOT_SUPPORTED;
    Stream* stream = find_stream(lock, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (!is_known || !can_touch(lock, *stream, address, sizeof(Word))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto* word = reinterpret_cast<Word*>(address);
    return driver_error(submit(lock, *stream, kMemOpNode, [run, word] { run(word); }));
  });
}

template <class Word>
CUresult write_value(const char* name, CUstream stream, CUdeviceptr address, Word value,
                     unsigned flags) {
  return mem_op<Word>(
      name, stream, address, flags == CU_STREAM_WRITE_VALUE_DEFAULT,
      [value](Word* word) { std::atomic_ref(*word).store(value, std::memory_order_release); });
}

// Without CU_STREAM_WAIT_VALUE_FLUSH, which few platforms have.
template <class Word>
CUresult wait_value(const char* name, CUstream stream, CUdeviceptr address, Word value,
                    unsigned how) {
  return mem_op<Word>(name, stream, address, how <= CU_STREAM_WAIT_VALUE_NOR,
                      [value, how](Word* word) { wait_until(word, value, how); });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                      unsigned flags) {
  return write_value<std::uint32_t>("cuStreamWriteValue32", stream, address, value, flags);
}
CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned flags) {
  return write_value<std::uint64_t>("cuStreamWriteValue64", stream, address, value, flags);
}
CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                     unsigned flags) {
  return wait_value<std::uint32_t>("cuStreamWaitValue32", stream, address, value, flags);
}
CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                     unsigned flags) {
  return wait_value<std::uint64_t>("cuStreamWaitValue64", stream, address, value, flags);
}

}  // extern "C"
