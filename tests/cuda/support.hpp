// What the tests of the CUDA half share: device buffers, ranks as threads, errors with their texts.
#pragma once

#include <cstdlib>
#include <cuda_runtime.h>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "treering/treering.h"

namespace treering::test {

// An environment variable while the object lives. Settings are read whenever a communicator forms.
class Env {
 public:
  Env(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) {
      had_ = true;
      before_ = before;
    }
    ::setenv(name, value.c_str(), 1);
  }
  ~Env() { had_ ? ::setenv(name_, before_.c_str(), 1) : ::unsetenv(name_); }
  Env(const Env&) = delete;
  Env& operator=(const Env&) = delete;

 private:
  const char* name_;
  bool had_ = false;
  std::string before_;
};

// Device memory is kept for the next array as large: freeing it waits for the kernels of all ranks
// on the device, and those may wait for the rank that frees.
class KeptMemory {
 public:
  static void* take(std::size_t bytes) {
    int device = 0;
    void* memory = nullptr;
    if (cudaGetDevice(&device) != cudaSuccess) std::abort();
    {
      std::lock_guard lock(mutex_);
      std::vector<void*>& kept = kept_[{device, bytes}];
      if (!kept.empty()) {
        memory = kept.back();
        kept.pop_back();
        return memory;
      }
    }
    if (cudaMalloc(&memory, bytes) != cudaSuccess) std::abort();
    std::lock_guard lock(mutex_);
    device_of_[memory] = device;
    return memory;
  }
  static void give_back(void* memory, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    kept_[{device_of_[memory], bytes}].push_back(memory);
  }

 private:
  static inline std::mutex mutex_;
  static inline std::map<std::pair<int, std::size_t>, std::vector<void*>> kept_;
  static inline std::map<void*, int> device_of_;
};

// An array in the memory of the device that is current where it is made.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count, T value = T{})
      : data_(static_cast<T*>(KeptMemory::take((count + 1) * sizeof(T)))), count_(count) {
    fill(value);
  }
  ~DeviceArray() { KeptMemory::give_back(data_, (count_ + 1) * sizeof(T)); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() const { return data_; }
  std::size_t count() const { return count_; }
  // Device memory of the emulator may be touched by the host.
  void fill(T value) {
    for (std::size_t i = 0; i < count_; ++i) data_[i] = value;
  }
  // How many elements are not `value`.
  std::size_t wrong(T value) const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < count_; ++i) n += data_[i] == value ? 0 : 1;
    return n;
  }

 private:
  T* data_;
  std::size_t count_;
};

// What a call answered, and the thread's last error with it.
struct Answer {
  tr_result_t code = TR_SUCCESS;
  std::string text;
  bool says(const std::string& words) const { return text.find(words) != std::string::npos; }
};
inline Answer answer(tr_result_t code) {
  return {code, code == TR_SUCCESS ? "" : tr_get_last_error()};
}
inline std::ostream& operator<<(std::ostream& out, const Answer& a) {
  return out << (a.code == TR_SUCCESS ? "success" : a.text);
}

#define EXPECT_TR(call)                                                   \
  do {                                                                    \
    const treering::test::Answer answer_ = treering::test::answer(call);  \
    EXPECT_EQ(answer_.code, TR_SUCCESS) << #call << ": " << answer_.text; \
  } while (false)

// Runs body(rank) on a thread each.
inline void on_threads(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (std::thread& t : threads) t.join();
}

// The communicators of `size` ranks in this process, made on a thread each: rank r's device is
// device_of(r).
class Comms {
 public:
  explicit Comms(
      int size, const std::function<int(int)>& device_of = [](int) { return 0; })
      : comms_(static_cast<std::size_t>(size)), answers_(comms_.size()) {
    tr_unique_id_t id;
    EXPECT_TR(tr_get_unique_id(&id));
    on_threads(size, [&](int r) {
      (void)cudaSetDevice(device_of(r));
      answers_[static_cast<std::size_t>(r)] =
          answer(tr_comm_init_rank(&comms_[static_cast<std::size_t>(r)], size, id, r));
    });
  }
  // Destroying is local, but drains: each on a thread, so that a hang names its rank.
  ~Comms() {
    on_threads(size(), [&](int r) {
      if ((*this)[r] != nullptr) (void)tr_comm_destroy((*this)[r]);
    });
  }
  Comms(const Comms&) = delete;
  Comms& operator=(const Comms&) = delete;

  int size() const { return static_cast<int>(comms_.size()); }
  tr_comm_t operator[](int r) const { return comms_[static_cast<std::size_t>(r)]; }
  const Answer& made(int r) const { return answers_[static_cast<std::size_t>(r)]; }
  bool ok() const {
    for (const Answer& a : answers_) {
      if (a.code != TR_SUCCESS) return false;
    }
    return true;
  }

 private:
  std::vector<tr_comm_t> comms_;
  std::vector<Answer> answers_;
};

// A stream of the caller's and its handle.
class UserStream {
 public:
  explicit UserStream(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&cuda_, flags), cudaSuccess);
    EXPECT_TR(tr_stream_from_cuda(&handle_, cuda_));
  }
  ~UserStream() {
    (void)tr_stream_destroy(handle_);
    EXPECT_EQ(cudaStreamDestroy(cuda_), cudaSuccess);
  }
  UserStream(const UserStream&) = delete;
  UserStream& operator=(const UserStream&) = delete;

  cudaStream_t cuda() const { return cuda_; }
  tr_stream_t get() const { return handle_; }

 private:
  cudaStream_t cuda_ = nullptr;
  tr_stream_t handle_ = nullptr;
};

}  // namespace treering::test
