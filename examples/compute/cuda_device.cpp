#include "compute/cuda_device.hpp"

#include <algorithm>
#include <utility>

#include "compute/cuda.hpp"

namespace compute {
namespace {

std::string words(cudaError_t error, const char* what) {
  (void)cudaGetLastError();  // it is told here: the next call must not find it again
  return std::string(what) + ": " + cudaGetErrorString(error);
}

tr::Status status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  return tr::Error{TR_SYSTEM_ERROR, words(error, what)};
}

}  // namespace

tr::Result<std::unique_ptr<Device>> make_cuda_device(int local_rank) {
  return CudaDevice::make(local_rank);
}

tr::Result<std::unique_ptr<Device>> CudaDevice::make(int local_rank) {
  std::unique_ptr<CudaDevice> device(new CudaDevice);
  if (auto s = device->open(local_rank); !s) return s.error();
  return std::unique_ptr<Device>(std::move(device));
}

tr::Status CudaDevice::open(int local_rank) {
  int devices = 0;
  if (auto s = status(cudaGetDeviceCount(&devices), "--device cuda: looking for a GPU"); !s) {
    return s;
  }
  if (devices == 0) return tr::Error{TR_UNSUPPORTED, "--device cuda: there is no GPU"};
  const int number = local_rank % devices;
  cudaDeviceProp properties;
  cudaError_t error = cudaSetDevice(number);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, number);
  // Not the default stream, which would wait for the kernels of collectives.
  for (cudaStream_t* stream : {&stream_, &side_stream_}) {
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
  }
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming);
  if (error == cudaSuccess) name_ = properties.name;
  return status(error, "--device cuda: opening the GPU");
}

CudaDevice::~CudaDevice() {
  if (forked_ != nullptr) (void)cudaEventDestroy(forked_);
  if (side_stream_ != nullptr) (void)cudaStreamDestroy(side_stream_);
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

void CudaDevice::note(cudaError_t error, const char* what) {
  if (error != cudaSuccess) note(words(error, what));
}
void CudaDevice::note(const std::string& error) {
  if (error_.empty()) error_ = error;
}

tr::Result<void*> CudaDevice::allocate(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, std::max<std::size_t>(bytes, 1));
  if (error == cudaSuccess) return memory;
  return tr::Error{TR_SYSTEM_ERROR,
                   words(error, name_.c_str()) + " (" + std::to_string(bytes) + " bytes)"};
}
void CudaDevice::release(void* memory) { (void)cudaFree(memory); }

tr::Status CudaDevice::upload(void* to, const void* from, std::size_t bytes) {
  note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "copying to the GPU");
  return synchronize();
}
tr::Status CudaDevice::download(void* to, const void* from, std::size_t bytes) {
  note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "copying from the GPU");
  return synchronize();
}
void CudaDevice::clear(void* memory, std::size_t bytes) {
  note(cudaMemsetAsync(memory, 0, bytes, stream_), "clearing memory");
}

tr::Status CudaDevice::synchronize() {
  note(cudaStreamSynchronize(stream_), "waiting for the GPU");
  if (error_.empty()) return {};
  return tr::Error{TR_SYSTEM_ERROR, std::exchange(error_, {})};
}

void CudaDevice::fork() {
  note(cudaEventRecord(forked_, stream_), "recording an event");
  note(cudaStreamWaitEvent(side_stream_, forked_, 0), "waiting for an event");
}

}  // namespace compute
