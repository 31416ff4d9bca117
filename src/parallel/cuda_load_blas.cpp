#include <dlfcn.h>
#include <string>
#include <type_traits>

#include "parallel/cuda_blas.hpp"

namespace tr::par {

Result<CudaBlas> load_cuda_blas() {
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12"}) {
    if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return Error{TR_UNSUPPORTED, std::string("no cuBLAS 13 or 12: ") + ::dlerror()};
  }
  CudaBlas blas;
  const char* missing = nullptr;
  const auto find = [&](const char* symbol, auto& function) {
    void* address = ::dlsym(library, symbol);
    if (address == nullptr && missing == nullptr) missing = symbol;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
  find("cublasCreate_v2", blas.create);
  find("cublasDestroy_v2", blas.destroy);
  find("cublasSetStream_v2", blas.set_stream);
  find("cublasGetStatusString", blas.words);
  find("cublasGemmEx", blas.gemm);
  if (missing != nullptr) {
    return Error{TR_UNSUPPORTED, std::string("cuBLAS has no ") + missing};
  }
  return blas;
}

}  // namespace tr::par
