#include "engine/cuda_stream_words.hpp"

#include <algorithm>
#include <string>

#include "core/cuda_driver.hpp"

namespace treering {
namespace {

// The driver's limit is "less than 256".
constexpr std::size_t kMostOps = 255;

constexpr int kSince = 12000;  // the driver's functions in their forms of CUDA 12

Status driver_status(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return {};
  return Status(Code::kSystem,
                std::string(what) + ": error " + std::to_string(static_cast<int>(result)));
}

}  // namespace

void StreamWords::Batch::add(CUstreamBatchMemOpType type, const std::uint64_t* word,
                             std::uint64_t value, unsigned flags) {
  CUstreamBatchMemOpParams op = {};
  op.operation = type;
  op.waitValue.address = reinterpret_cast<CUdeviceptr>(word);
  op.waitValue.value64 = value;
  op.waitValue.flags = flags;  // a write's parameters have the same layout
  ops_.push_back(op);
}

void StreamWords::Batch::write(const std::uint64_t* word, std::uint64_t value) {
  add(CU_STREAM_MEM_OP_WRITE_VALUE_64, word, value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

void StreamWords::Batch::wait(const std::uint64_t* word, std::uint64_t value) {
  add(CU_STREAM_MEM_OP_WAIT_VALUE_64, word, value, CU_STREAM_WAIT_VALUE_EQ);
}

Result<StreamWords> StreamWords::make(int device) {
  CUresult(CUDAAPI * attribute)(int*, CUdevice_attribute, CUdevice) = nullptr;
  TR_RETURN_IF_ERROR(find_driver_function("cuDeviceGetAttribute", kSince, attribute));
  int can = 0;
  TR_RETURN_IF_ERROR(
      driver_status(attribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device),
                    "cuDeviceGetAttribute"));
  if (can == 0) {
    return unsupported("streams of device " + std::to_string(device) +
                       " cannot write and wait for words (no 64-bit stream memory operations)");
  }
  StreamWords words;
  TR_RETURN_IF_ERROR(find_driver_function("cuStreamBatchMemOp", kSince, words.batch_mem_op_));
  return words;
}

Status StreamWords::submit(Batch& batch, cudaStream_t stream) const {
  for (std::size_t at = 0; at < batch.ops_.size(); at += kMostOps) {
    const std::size_t count = std::min(kMostOps, batch.ops_.size() - at);
    TR_RETURN_IF_ERROR(
        driver_status(batch_mem_op_(stream, static_cast<unsigned>(count), &batch.ops_[at], 0),
                      "cuStreamBatchMemOp"));
  }
  batch.ops_.clear();
  return {};
}

}  // namespace treering
