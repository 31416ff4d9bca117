// A GPU as a Device.
#pragma once

#include <cuda_runtime.h>

#include "compute/device.hpp"

namespace compute {

class CudaDevice final : public Device {
 public:
  static tr::Result<std::unique_ptr<Device>> make(int local_rank);
  ~CudaDevice() override;

  bool is_host() const override { return false; }
  std::string name() const override { return name_; }
  tr::Result<void*> allocate(std::size_t bytes) override;
  void release(void* memory) override;
  tr::Status upload(void* to, const void* from, std::size_t bytes) override;
  tr::Status download(void* to, const void* from, std::size_t bytes) override;
  void clear(void* memory, std::size_t bytes) override;
  tr::Status synchronize() override;
  void* side_stream() const override { return side_stream_; }
  void fork() override;

  cudaStream_t stream() const { return stream_; }
  // Keeps the first error, for whoever waits next.
  void note(cudaError_t error, const char* what);
  void note(const std::string& error);

 private:
  CudaDevice() = default;
  tr::Status open(int local_rank);

  std::string name_;
  cudaStream_t stream_ = nullptr, side_stream_ = nullptr;
  cudaEvent_t forked_ = nullptr;
  std::string error_;  // the first since the last wait
};

}  // namespace compute
