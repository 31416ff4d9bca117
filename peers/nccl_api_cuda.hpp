// What of NCCL's public interface is used here, which is the same since 2.11. libnccl.so.2 is
// opened at run time ($TREERING_NCCL: another file), so nothing of NCCL is needed to build this.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <optional>
#include <string>
#include <type_traits>

namespace treering::perf {

using NcclComm = void*;
struct NcclId {
  char bytes[128];
};
inline constexpr int kNcclSuccess = 0;
inline constexpr int kMultiRankVersion =
    23003;  // several ranks on a GPU, if a variable asks for it
inline constexpr int kFloat8Version = 22400;

struct Nccl {
  int version = 0;
  int (*get_version)(int*) = nullptr;
  int (*get_id)(NcclId*) = nullptr;
  int (*init_rank)(NcclComm*, int, NcclId, int) = nullptr;
  int (*destroy)(NcclComm) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*async_error)(NcclComm, int*) = nullptr;
  int (*create_premul)(int*, void*, int, int, NcclComm) = nullptr;
  int (*destroy_op)(int, NcclComm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int, int, NcclComm, cudaStream_t) = nullptr;
  int (*reduce)(const void*, void*, std::size_t, int, int, int, NcclComm, cudaStream_t) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int, int, NcclComm, cudaStream_t) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int, NcclComm, cudaStream_t) = nullptr;
  int (*reduce_scatter)(const void*, void*, std::size_t, int, int, NcclComm,
                        cudaStream_t) = nullptr;
  int (*send)(const void*, std::size_t, int, int, NcclComm, cudaStream_t) = nullptr;
  int (*recv)(void*, std::size_t, int, int, NcclComm, cudaStream_t) = nullptr;

  std::string version_text() const {
    return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
           "." + std::to_string(version % 100);
  }
  std::optional<std::string> explain(const char* what, int code) const {
    if (code == kNcclSuccess) return std::nullopt;
    return std::string(what) + ": " + error_string(code);
  }
};

inline std::optional<std::string> open_nccl(Nccl* out) {
  const char* other = std::getenv("TREERING_NCCL");
  void* library = ::dlopen(other != nullptr ? other : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::string("no NCCL: ") + ::dlerror();
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    void* address = ::dlsym(library, name);
    if (address == nullptr && missing == nullptr) missing = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
  find("ncclGetVersion", out->get_version);
  find("ncclGetUniqueId", out->get_id);
  find("ncclCommInitRank", out->init_rank);
  find("ncclCommDestroy", out->destroy);
  find("ncclGetErrorString", out->error_string);
  find("ncclCommGetAsyncError", out->async_error);
  find("ncclRedOpCreatePreMulSum", out->create_premul);
  find("ncclRedOpDestroy", out->destroy_op);
  find("ncclGroupStart", out->group_start);
  find("ncclGroupEnd", out->group_end);
  find("ncclAllReduce", out->all_reduce);
  find("ncclReduce", out->reduce);
  find("ncclBroadcast", out->broadcast);
  find("ncclAllGather", out->all_gather);
  find("ncclReduceScatter", out->reduce_scatter);
  find("ncclSend", out->send);
  find("ncclRecv", out->recv);
  if (missing != nullptr) return std::string("this NCCL is too old: it has no ") + missing;
  return out->explain("ncclGetVersion", out->get_version(&out->version));
}

}  // namespace treering::perf
