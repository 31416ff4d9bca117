// Registering device memory: who sees what where, and what is refused on all ranks alike.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/support.hpp"
#include "cudasim/control.hpp"
#include "tests/transports/ranks.hpp"
#include "transports/device_links.hpp"

namespace treering::test {
namespace {

bool says(const Status& status, const std::string& part) {
  return !status.ok() && status.message().find(part) != std::string::npos;
}

// Freed as soon as nobody can use it: no kernels run in these tests.
class Block {
 public:
  explicit Block(std::size_t bytes) {
    if (cudaMalloc(reinterpret_cast<void**>(&data_), bytes) != cudaSuccess) std::abort();
  }
  ~Block() { free(); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* get() const { return data_; }
  void free() {
    EXPECT_EQ(cudaFree(data_), cudaSuccess);
    data_ = nullptr;
  }

 private:
  std::byte* data_ = nullptr;
};

// Each rank writes into a part of everybody's window, and reads all; `devices` share the ranks.
std::string use_windows(TestRendezvous& rendezvous, int devices) {
  const int me = rendezvous.rank(), ranks = rendezvous.size();
  TR_MUST(cudaSetDevice(me % devices) == cudaSuccess);
  auto connected = connect_device(rendezvous, {});
  TR_MUST_OK(connected.status());
  const DeviceLinks& links = *connected.value();
  // Different sizes and offsets on all ranks, and two windows in one allocation.
  const std::size_t bytes = 5000 + 1000 * static_cast<std::size_t>(me);
  const std::size_t offset = 3 + 8 * static_cast<std::size_t>(me);
  const Block block(offset + bytes);
  std::byte* const mine = block.get() + offset;
  std::memset(mine, 'a' + me, bytes);
  TR_MUST(cudaSetDevice(devices) == cudaSuccess);  // not the rank's
  for (int turn = 0; turn < 2; ++turn) {
    auto mapped = links.map_windows(mine, bytes, rendezvous);
    TR_MUST_OK(mapped.status());
    auto again = links.map_windows(mine, 16, rendezvous);
    TR_MUST_OK(again.status());
    int device = -1;
    TR_MUST(cudaGetDevice(&device) == cudaSuccess && device == devices);
    WindowMap map = std::move(mapped).value();
    TR_MUST(map.base[static_cast<std::size_t>(me)] == mine);
    TR_MUST(map.seen_at[static_cast<std::size_t>(me)] == mine);
    for (int r = 0; r < ranks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      TR_MUST(map.bytes[i] == 5000 + 1000 * i);
      TR_MUST(map.base[i] == again.value().base[i]);
      TR_MUST(map.base[i][turn == 0 ? 0 : ranks] == static_cast<std::byte>('a' + r));
      TR_MUST(map.base[i][map.bytes[i] - 1] == static_cast<std::byte>('a' + r));
    }
    // What a rank says of where it is seen is what the others see.
    std::string blob(reinterpret_cast<const char*>(map.seen_at.data()),
                     map.seen_at.size() * sizeof map.seen_at[0]);
    auto told = rendezvous.all_gather(blob);
    TR_MUST_OK(told.status());
    for (int r = 0; r < ranks; ++r) {
      std::byte* at = nullptr;
      std::memcpy(&at, told.value()[static_cast<std::size_t>(r)].data() + sizeof at * me,
                  sizeof at);
      TR_MUST(at == map.base[static_cast<std::size_t>(r)]);
    }
    for (int r = 0; r < ranks; ++r)
      map.base[static_cast<std::size_t>(r)][me] = static_cast<std::byte>(me);
    TR_MUST_EQ(rendezvous.barrier(), "");
    for (int r = 0; r < ranks; ++r) TR_MUST(mine[r] == static_cast<std::byte>(r));
    TR_MUST_EQ(rendezvous.barrier(), "");
  }
  return rendezvous.barrier();
}

TEST(WindowMap, ThreadsOfOneDeviceReachEachOther) {
  cudasim::Live before;
  for (int i = 0; i < 2; ++i) {
    before = cudasim::live();
    EXPECT_EQ(run_threads(3, [](TestRendezvous& r) { return use_windows(r, 1); }), "");
  }
  EXPECT_EQ(cudasim::live(), before);  // slabs are kept for the next links; nothing else is left
}
TEST(WindowMap, ThreadsOfSeveralDevicesToo) {
  EXPECT_EQ(run_threads(4, [](TestRendezvous& r) { return use_windows(r, 2); }), "");
}

// Forked before this process has used CUDA: a run of their own.
TEST(Processes, ReachEachOther) {
  for (const int per_process : {1, 2}) {
    const auto body = [](TestRendezvous& r) { return use_windows(r, 2); };
    EXPECT_EQ(run_processes(4, body, per_process), "") << per_process << " ranks a process";
  }
}

// A rank brings what cannot be mapped; all get the same error, which names it, and the next time
// all have a window.
std::string refuse(TestRendezvous& rendezvous, int guilty) {
  auto connected = connect_device(rendezvous, {});
  TR_MUST_OK(connected.status());
  const DeviceLinks& links = *connected.value();
  const Block block(1000);
  Block freed(1000);
  std::byte* const gone = freed.get();
  freed.free();
  TR_MUST(cudaSetDevice(1) == cudaSuccess);
  const Block elsewhere(1000);
  TR_MUST(cudaSetDevice(0) == cudaSuccess);
  std::byte on_host[64] = {};
  const struct {
    void* ptr;
    std::size_t bytes;
    const char* words;
  } cases[] = {
      {block.get(), 0, "a window has at least one byte"},
      {block.get() + 1, 1000,
       "a window of 1000 bytes at offset 1 exceeds its allocation of 1000 bytes"},
      {block.get() + 999, SIZE_MAX, "exceeds its allocation of 1000 bytes"},
      {gone, 1000, "is not (or no longer) device memory"},
      {on_host, 64, "is not (or no longer) device memory"},
      {nullptr, 64, "is not (or no longer) device memory"},
      {elsewhere.get(), 1000, "is on device 1, and this rank of the communicator is on device 0"},
  };
  for (const auto& c : cases) {
    const bool bad = rendezvous.rank() == guilty;
    const auto mapped =
        links.map_windows(bad ? c.ptr : block.get(), bad ? c.bytes : 1000, rendezvous);
    TR_MUST(!mapped.ok());
    TR_MUST(says(mapped.status(), "rank " + std::to_string(guilty) + ": "));
    if (!says(mapped.status(), c.words)) return mapped.status().message();
    TR_MUST_OK(links.map_windows(block.get() + 1, 999, rendezvous).status());
  }
  return "";
}

TEST(WindowMap, WhatOneRankCannotBringIsAnErrorOnAll) {
  for (const int guilty : {0, 2}) {
    EXPECT_EQ(run_threads(3, [&](TestRendezvous& r) { return refuse(r, guilty); }), "");
  }
}

// --- By the API

Answer register_all(const Comms& comms, const std::function<void*(int)>& memory,
                    const std::function<std::size_t(int)>& bytes) {
  std::vector<Answer> answers(static_cast<std::size_t>(comms.size()));
  on_threads(comms.size(), [&](int r) {
    tr_window_t window = nullptr;
    answers[static_cast<std::size_t>(r)] =
        answer(tr_comm_register(comms[r], memory(r), bytes(r), &window));
    EXPECT_EQ(window != nullptr, answers[static_cast<std::size_t>(r)].code == TR_SUCCESS);
    if (window == nullptr) return;
    EXPECT_TR(tr_comm_deregister(comms[r], window));
    EXPECT_EQ(tr_comm_deregister(comms[r], window), TR_INVALID_USAGE);
  });
  for (const Answer& a : answers) {
    EXPECT_EQ(a.code, answers[0].code) << a;
    EXPECT_EQ(a.text, answers[0].text);
  }
  return answers[0];
}

TEST(Register, AllRanksBringTheSameKindOfMemory) {
  const Comms comms(3);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  const DeviceArray<std::byte> device(4096);
  void* host = nullptr;
  ASSERT_EQ(tr_mem_alloc(&host, 4096), TR_SUCCESS);
  const auto whole = [](int) -> std::size_t { return 4096; };
  EXPECT_EQ(register_all(
                comms, [&](int) { return device.get(); }, whole)
                .code,
            TR_SUCCESS);
  EXPECT_EQ(register_all(
                comms, [&](int) { return host; }, whole)
                .code,
            TR_SUCCESS);
  const Answer mixed = register_all(
      comms, [&](int r) { return r == 1 ? host : device.get(); }, whole);
  EXPECT_EQ(mixed.code, TR_INVALID_ARGUMENT) << mixed;
  EXPECT_TRUE(
      mixed.says("rank 0 registers device memory and rank 1 memory of no device; all ranks "
                 "must bring the same kind"))
      << mixed;
  const Answer large = register_all(
      comms, [&](int) { return device.get(); }, [](int r) { return r == 2 ? 5000u : 4096u; });
  EXPECT_EQ(large.code, TR_INVALID_ARGUMENT) << large;
  EXPECT_TRUE(large.says("rank 2: a window of 5000 bytes at offset 0 exceeds its allocation"))
      << large;
  EXPECT_TR(tr_mem_free(host));
}

TEST(Register, WithoutGpuLinksDeviceMemoryIsRefused) {
  const Env quiet("TR_LOG", "off");
  cudasim::fail_call("cudaDeviceGetPCIBusId", 1, cudaErrorUnknown);
  const Comms comms(2);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  const DeviceArray<std::byte> device(4096);
  const Answer a = register_all(
      comms, [&](int) { return device.get(); }, [](int) { return 4096u; });
  EXPECT_EQ(a.code, TR_UNSUPPORTED) << a;
  EXPECT_TRUE(a.says("this communicator has no GPU links")) << a;
}

}  // namespace
}  // namespace treering::test
