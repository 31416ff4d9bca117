#include "treering/parallel/tensor.hpp"

#include <algorithm>
#include <string>

namespace tr::par {

tr_type_t wire_type(DType type) {
  switch (type) {
    case DType::kFloat64:
      return TR_FLOAT64;
    case DType::kFloat32:
      return TR_FLOAT32;
    case DType::kBFloat16:
      return TR_BFLOAT16;
    case DType::kFloat16:
      return TR_FLOAT16;
  }
  return TR_NUM_TYPES;
}

const char* name_of(DType type) {
  constexpr const char* kNames[] = {"fp64", "fp32", "bf16", "fp16"};
  return kNames[static_cast<int>(type)];
}

const char* name_of(Use use) {
  constexpr const char* kNames[] = {"parameters", "gradients", "optimizer", "activations",
                                    "buffers"};
  return kNames[static_cast<int>(use)];
}

std::int64_t Memory::bytes() const {
  std::int64_t sum = 0;
  for (const std::int64_t bytes : now_) sum += bytes;
  return sum;
}

void Memory::count(Use use, std::int64_t change) {
  now_[static_cast<int>(use)] += change;
  peak_ = std::max(peak_, bytes());
}

Result<Tensor> Tensor::make(Memory& memory, Use use, std::int64_t rows, std::int64_t cols,
                            DType type) {
  if (rows < 0 || cols < 0) {
    return Error{TR_INVALID_ARGUMENT, "a tensor of " + std::to_string(rows) + " x " +
                                          std::to_string(cols) + " elements"};
  }
  Tensor made;
  made.view_ = view_of(nullptr, rows, cols, type);
  if (made.view_.bytes() > 0) {
    made.view_.data = memory.allocate(use, made.view_.bytes());
    if (made.view_.data == nullptr) {
      return Error{TR_SYSTEM_ERROR, std::string("no memory for ") + name_of(use) + ": " +
                                        std::to_string(made.view_.bytes()) + " bytes"};
    }
  }
  made.memory_ = &memory;
  made.use_ = use;
  memory.count(use, static_cast<std::int64_t>(made.view_.bytes()));
  return made;
}

Tensor::~Tensor() {
  if (memory_ == nullptr) return;
  if (view_.data != nullptr) memory_->release(use_, view_.data, view_.bytes());
  memory_->count(use_, -static_cast<std::int64_t>(view_.bytes()));
}

}  // namespace tr::par
