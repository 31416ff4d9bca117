// Ranks as processes: IPC handles, and the VMM functions with a descriptor sent over a socket.
// The parent never calls CUDA, so that the children may.
#include <cuda.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx_memory.cuh"

namespace {

using namespace treering::cuda;

constexpr int kRounds = 50;
constexpr int kThreads = 64;

// What two ranks share: a flag in each direction and a slot.
struct Link {
  std::uint64_t ping;
  std::uint64_t pong;
  Vec16 slot[kThreads];
};

// Rank 0 owns the link and answers; rank 1 sends numbers through it and gets them back plus one.
__global__ void serve(Link* link) {
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    while (load_acquire(&link->ping) != round) spin_pause();
    __syncthreads();
    Vec16 v = load_vec(&link->slot[thread_id()]);
    ++v.lo;
    store_vec(&link->slot[thread_id()], v);
    __syncthreads();
    if (thread_id() == 0) store_release(&link->pong, round);
    __syncthreads();
  }
}
__global__ void ask(Link* link, int* errors) {
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    const std::uint64_t sent = round * 1000 + static_cast<std::uint64_t>(thread_id());
    store_vec(&link->slot[thread_id()], {sent, 0});
    __syncthreads();
    if (thread_id() == 0) store_release(&link->ping, round);
    while (load_acquire(&link->pong) != round) spin_pause();
    if (load_vec(&link->slot[thread_id()]).lo != sent + 1) errors[thread_id()] = 1;
    __syncthreads();
  }
}

bool serve_link(Link* link) {
  return launch(serve, 1, kThreads, 0, nullptr, link) == cudaSuccess &&
         cudaDeviceSynchronize() == cudaSuccess;
}
bool ask_link(Link* link) {
  int* errors = nullptr;
  std::vector<int> host(kThreads, 1);
  return cudaMalloc(reinterpret_cast<void**>(&errors), kThreads * sizeof(int)) == cudaSuccess &&
         cudaMemset(errors, 0, kThreads * sizeof(int)) == cudaSuccess &&
         launch(ask, 1, kThreads, 0, nullptr, link, errors) == cudaSuccess &&
         cudaMemcpy(host.data(), errors, kThreads * sizeof(int), cudaMemcpyDeviceToHost) ==
             cudaSuccess &&
         host == std::vector<int>(kThreads, 0);
}

// Runs body(rank, socket to the other) in two processes; true if both return true.
template <class Body>
bool run_two_ranks(Body body) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return false;
  pid_t children[2];
  for (int rank = 0; rank < 2; ++rank) {
    children[rank] = fork();
    if (children[rank] == 0) {
      close(sockets[1 - rank]);
      _exit(body(rank, sockets[rank]) ? 0 : 1);
    }
  }
  close(sockets[0]);
  close(sockets[1]);
  bool ok = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return ok;
}

// Returns where in the body it failed.
#define REQUIRE(condition)                                       \
  if (!(condition)) {                                            \
    std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
    return false;                                                \
  }

template <class T>
bool send_value(int socket, const T& value) {
  return write(socket, &value, sizeof value) == static_cast<ssize_t>(sizeof value);
}
template <class T>
bool receive_value(int socket, T* value) {
  return read(socket, value, sizeof *value) == static_cast<ssize_t>(sizeof *value);
}

bool ipc_rank(int rank, int socket, int device) {
  REQUIRE(cudaSetDevice(device) == cudaSuccess);
  cudaIpcMemHandle_t handle;
  char done = 0;
  if (rank == 0) {
    Link* link = nullptr;
    REQUIRE(cudaMalloc(reinterpret_cast<void**>(&link), sizeof *link) == cudaSuccess);
    REQUIRE(cudaMemset(link, 0, sizeof *link) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    REQUIRE(cudaIpcGetMemHandle(&handle, link) == cudaSuccess);
    void* own = nullptr;
    REQUIRE(cudaIpcOpenMemHandle(&own, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
    REQUIRE(send_value(socket, handle));
    REQUIRE(serve_link(link));
    REQUIRE(receive_value(socket, &done));
    return cudaFree(link) == cudaSuccess;
  }
  REQUIRE(receive_value(socket, &handle));
  Link *link = nullptr, *again = nullptr;
  REQUIRE(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&link), handle,
                               cudaIpcMemLazyEnablePeerAccess) == cudaSuccess);
  REQUIRE(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), handle,
                               cudaIpcMemLazyEnablePeerAccess) == cudaSuccess);
  REQUIRE(link == again);
  REQUIRE(cudaIpcCloseMemHandle(again) == cudaSuccess);
  REQUIRE(ask_link(link));
  REQUIRE(cudaFree(link) == cudaErrorInvalidValue);
  REQUIRE(cudaIpcCloseMemHandle(link) == cudaSuccess);
  REQUIRE(cudaIpcCloseMemHandle(link) == cudaErrorInvalidValue);
  return send_value(socket, done);
}

TEST(Processes, KernelsWaitForEachOtherThroughAnIpcHandle) {
  EXPECT_TRUE(run_two_ranks([](int rank, int socket) { return ipc_rank(rank, socket, rank); }));
}
TEST(Processes, OnOneDevice) {
  EXPECT_TRUE(run_two_ranks([](int rank, int socket) { return ipc_rank(rank, socket, 0); }));
}

TEST(Processes, AHandleOfFreedMemoryIsRefused) {
  EXPECT_TRUE(run_two_ranks([](int rank, int socket) {
    cudaIpcMemHandle_t handle;
    if (rank == 0) {
      void *p = nullptr, *other = nullptr;
      REQUIRE(cudaMalloc(&p, 100) == cudaSuccess);
      REQUIRE(cudaIpcGetMemHandle(&handle, p) == cudaSuccess);
      REQUIRE(cudaFree(p) == cudaSuccess);
      REQUIRE(cudaMalloc(&other, 100) == cudaSuccess);  // has the old number, perhaps
      REQUIRE(send_value(socket, handle));
      char done;
      return receive_value(socket, &done);
    }
    REQUIRE(receive_value(socket, &handle));
    void* p = nullptr;
    REQUIRE(cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
    return send_value(socket, 'x');
  }));
}

TEST(Processes, AForkedChildOfAUserOfCudaIsRefused) {
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) _exit(1);
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(cudaGetDeviceCount(&count) == cudaErrorInitializationError ? 0 : 1);
    int status = 0;
    waitpid(grandchild, &status, 0);
    _exit(WEXITSTATUS(status));
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// --- VMM
// ---------------------------------------------------------------------------------------------

bool send_file(int socket, int file) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &file, sizeof file);
  return sendmsg(socket, &message, 0) == 1;
}
int receive_file(int socket) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  int file = -1;
  if (recvmsg(socket, &message, 0) == 1)
    std::memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
  return file;
}

// Entry points, as a library gets them that does not link libcuda.
template <class F>
F entry(const char* name) {
  void* function = nullptr;
  cudaGetDriverEntryPointByVersion(name, &function, 12080, cudaEnableDefault, nullptr);
  return reinterpret_cast<F>(function);
}
#define ENTRY(name) const auto name##_fn = entry<decltype(&name)>(#name)

bool vmm_rank(int rank, int socket) {
  ENTRY(cuMemGetAllocationGranularity);
  ENTRY(cuMemCreate);
  ENTRY(cuMemAddressReserve);
  ENTRY(cuMemMap);
  ENTRY(cuMemSetAccess);
  ENTRY(cuMemExportToShareableHandle);
  ENTRY(cuMemImportFromShareableHandle);
  ENTRY(cuMemUnmap);
  ENTRY(cuMemRelease);
  ENTRY(cuMemAddressFree);
  REQUIRE(cudaSetDevice(rank) == cudaSuccess);
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {rank}};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t bytes = 0;
  REQUIRE(cuMemGetAllocationGranularity_fn(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
          CUDA_SUCCESS);
  CUmemGenericAllocationHandle handle = 0;
  if (rank == 0) {
    REQUIRE(cuMemCreate_fn(&handle, bytes + 1, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemCreate_fn(&handle, bytes, &prop, 0) == CUDA_SUCCESS);
    int file = -1;
    REQUIRE(cuMemExportToShareableHandle_fn(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            0) == CUDA_SUCCESS);
    REQUIRE(send_file(socket, file));
    close(file);
  } else {
    const int file = receive_file(socket);
    REQUIRE(cuMemImportFromShareableHandle_fn(&handle, reinterpret_cast<void*>(std::intptr_t{file}),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
            CUDA_SUCCESS);
    close(file);
  }
  CUdeviceptr address = 0;
  REQUIRE(cuMemAddressReserve_fn(&address, bytes, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap_fn(address, bytes, 0, handle, 0) == CUDA_SUCCESS);
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {rank}},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  REQUIRE(cuMemSetAccess_fn(address, bytes, &access, 1) == CUDA_SUCCESS);
  auto* link = reinterpret_cast<Link*>(address);
  char done = 0;
  REQUIRE(rank == 0 ? serve_link(link) : ask_link(link));
  REQUIRE(send_value(socket, done) && receive_value(socket, &done));
  REQUIRE(cuMemRelease_fn(handle) == CUDA_SUCCESS);
  REQUIRE(cuMemAddressFree_fn(address, bytes) == CUDA_ERROR_INVALID_VALUE);  // still mapped
  REQUIRE(cuMemUnmap_fn(address, bytes) == CUDA_SUCCESS);
  REQUIRE(cuMemAddressFree_fn(address, bytes) == CUDA_SUCCESS);
  return cuMemRelease_fn(handle) == CUDA_ERROR_INVALID_VALUE;
}

TEST(Processes, VirtualMemoryWithADescriptorOverASocket) { EXPECT_TRUE(run_two_ranks(vmm_rank)); }

}  // namespace
