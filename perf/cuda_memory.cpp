// GPU memory for a worker, and CUDA's events as its clock. Compiled against CUDA's own runtime, and
// against the emulator for the tests.
#include <algorithm>
#include <cuda_runtime.h>
#include <vector>

#include "perf/memory.hpp"

namespace treering::perf {
namespace {

Failure failed(const char* what, cudaError_t error) {
  if (error == cudaSuccess) return std::nullopt;
  (void)cudaGetLastError();
  return std::string(what) + ": " + cudaGetErrorName(error) + " (" + cudaGetErrorString(error) +
         ")";
}

#define TR_PERF_CUDA(call)                                       \
  do {                                                           \
    if (Failure failure_ = failed(#call, call)) return failure_; \
  } while (false)

Failure count_devices(int* count) {
  *count = 0;  // which CUDA leaves alone where there is no driver
  const cudaError_t error = cudaGetDeviceCount(count);
  if (error == cudaSuccess && *count > 0) return std::nullopt;
  return "no GPU or no driver: " +
         std::string(cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error));
}

// So that it fits no cache (the largest have 126 MiB), and a small device has room for it.
constexpr std::size_t kCopyBytes = std::size_t{512} << 20;
constexpr std::size_t kShareOfDevice = 32;

class CudaMemory final : public Memory {
 public:
  ~CudaMemory() override {
    for (cudaEvent_t event : {begin_, end_}) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    for (void* memory : memory_) (void)cudaFree(memory);
  }

  Failure open(int rank) {
    if (Failure failure = count_devices(&devices_)) return failure;
    number_ = rank % devices_;
    TR_PERF_CUDA(cudaSetDevice(number_));
    cudaDeviceProp properties;
    TR_PERF_CUDA(cudaGetDeviceProperties(&properties, number_));
    device_ = properties.name;
    TR_PERF_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    TR_PERF_CUDA(cudaEventCreate(&begin_));
    TR_PERF_CUDA(cudaEventCreate(&end_));
    return std::nullopt;
  }

  Failure allocate(std::size_t bytes, void** a, void** b) override {
    for (void** buffer : {a, b}) {
      TR_PERF_CUDA(cudaMalloc(buffer, bytes));
      memory_.push_back(*buffer);
      if (Failure failure = set(*buffer, 0, bytes)) return failure;
    }
    return std::nullopt;
  }
  Failure set(void* at, unsigned char value, std::size_t bytes) override {
    TR_PERF_CUDA(cudaMemsetAsync(at, value, bytes, stream_));
    return std::nullopt;
  }
  Failure write(void* at, std::size_t bytes, const std::function<void(void*)>& fill) override {
    const auto host = std::make_unique_for_overwrite<std::byte[]>(bytes);
    fill(host.get());
    TR_PERF_CUDA(cudaMemcpyAsync(at, host.get(), bytes, cudaMemcpyHostToDevice, stream_));
    TR_PERF_CUDA(cudaStreamSynchronize(stream_));
    return std::nullopt;
  }
  Failure read(const void* at, std::size_t bytes,
               const std::function<void(const void*)>& look) override {
    const auto host = std::make_unique_for_overwrite<std::byte[]>(bytes);
    TR_PERF_CUDA(cudaMemcpyAsync(host.get(), at, bytes, cudaMemcpyDeviceToHost, stream_));
    TR_PERF_CUDA(cudaStreamSynchronize(stream_));
    look(host.get());
    return std::nullopt;
  }

  Failure begin() override {
    TR_PERF_CUDA(cudaEventRecord(begin_, stream_));
    return std::nullopt;
  }
  Failure end() override {
    TR_PERF_CUDA(cudaEventRecord(end_, stream_));
    return std::nullopt;
  }
  Failure elapsed(std::uint64_t* ns) override {
    TR_PERF_CUDA(cudaEventSynchronize(end_));
    float ms = 0;
    TR_PERF_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
    *ns = static_cast<std::uint64_t>(static_cast<double>(ms) * 1e6);
    return std::nullopt;
  }

  void* stream() const override { return stream_; }
  std::string device() const override { return device_; }
  int devices() const override { return devices_; }
  int device_number() const override { return number_; }

  Failure measure_copy(double* gb_s) override {
    std::size_t available = 0, total = 0;
    TR_PERF_CUDA(cudaMemGetInfo(&available, &total));
    const std::size_t bytes = std::min(kCopyBytes, total / kShareOfDevice);
    void *from = nullptr, *to = nullptr;
    Failure failure = failed("cudaMalloc", cudaMalloc(&from, bytes));
    if (!failure) failure = failed("cudaMalloc", cudaMalloc(&to, bytes));
    if (!failure) failure = time_copies(from, to, bytes, gb_s);
    (void)cudaFree(from);
    (void)cudaFree(to);
    return failure;
  }

 private:
  // The fastest of a few: what the device can do.
  Failure time_copies(void* from, void* to, std::size_t bytes, double* gb_s) {
    constexpr int kTimes = 5;
    std::uint64_t fastest_ns = ~std::uint64_t{0};
    if (Failure failure = set(from, 1, bytes)) return failure;
    for (int i = 0; i < kTimes; ++i) {
      if (Failure failure = begin()) return failure;
      TR_PERF_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
      if (Failure failure = end()) return failure;
      std::uint64_t ns = 0;
      if (Failure failure = elapsed(&ns)) return failure;
      fastest_ns = std::min(fastest_ns, std::max<std::uint64_t>(ns, 1));
    }
    *gb_s = static_cast<double>(bytes) / static_cast<double>(fastest_ns);
    return std::nullopt;
  }

  int devices_ = 0;
  int number_ = 0;
  std::string device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<void*> memory_;
};

}  // namespace

Failure why_no_cuda() {
  int devices = 0;
  return count_devices(&devices);
}

Failure make_cuda_memory(int rank, std::unique_ptr<Memory>* out) {
  auto memory = std::make_unique<CudaMemory>();
  if (Failure failure = memory->open(rank)) return failure;
  *out = std::move(memory);
  return std::nullopt;
}

}  // namespace treering::perf
