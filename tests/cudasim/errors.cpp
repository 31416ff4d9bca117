// Names and words of errors; those that the emulator returns, and a few that its users compare
// with.
#include <cuda_runtime_api.h>

namespace {

struct Words {
  cudaError_t error;
  const char* name;
  const char* text;
};
#define WORDS(error, text) \
  { error, #error, text }
constexpr Words kWords[] = {
    WORDS(cudaSuccess, "no error"),
    WORDS(cudaErrorInvalidValue, "invalid argument"),
    WORDS(cudaErrorMemoryAllocation, "out of memory"),
    WORDS(cudaErrorInitializationError, "initialization error"),
    WORDS(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    WORDS(cudaErrorInsufficientDriver,
          "CUDA driver version is insufficient for CUDA runtime version"),
    WORDS(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    WORDS(cudaErrorInvalidDevice, "invalid device ordinal"),
    WORDS(cudaErrorDeviceUninitialized, "invalid device context"),
    WORDS(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed"),
    WORDS(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    WORDS(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    WORDS(cudaErrorNotReady, "device not ready"),
    WORDS(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    WORDS(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    WORDS(cudaErrorHostMemoryAlreadyRegistered,
          "part or all of the requested memory range is already mapped"),
    WORDS(cudaErrorHostMemoryNotRegistered,
          "pointer does not correspond to a registered memory region"),
    WORDS(cudaErrorNotPermitted, "operation not permitted"),
    WORDS(cudaErrorNotSupported, "operation not supported"),
    WORDS(cudaErrorSymbolNotFound, "named symbol not found"),
    WORDS(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    WORDS(cudaErrorStreamCaptureInvalidated,
          "operation failed due to a previous error during capture"),
    WORDS(cudaErrorStreamCaptureMerge,
          "operation would result in a merge of separate capture sequences"),
    WORDS(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    WORDS(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    WORDS(cudaErrorStreamCaptureIsolation,
          "dependency created on uncaptured work in another stream"),
    WORDS(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    WORDS(cudaErrorCapturedEvent,
          "operation not permitted on an event last recorded in a capturing stream"),
    WORDS(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
    WORDS(cudaErrorUnknown, "unknown error"),
};

const Words& find(cudaError_t error) {
  static constexpr Words kNone = {cudaErrorUnknown, "unrecognized error code",
                                  "unrecognized error code"};
  for (const Words& words : kWords) {
    if (words.error == error) return words;
  }
  return kNone;
}

}  // namespace

extern "C" {
const char* cudaGetErrorName(cudaError_t error) { return find(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return find(error).text; }
}
