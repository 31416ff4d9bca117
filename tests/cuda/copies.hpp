// Windows of device memory, for the tests of copy engines.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/support.hpp"

namespace treering::test {

// Registered memory of the device that is current where it is made, collectively. It stays
// registered until its communicator is destroyed, and is kept for the next window.
class DeviceWindow {
 public:
  DeviceWindow(tr_comm_t comm, std::size_t bytes) : memory_(bytes) {
    tr_window_t window = nullptr;
    const Answer a = answer(tr_comm_register(comm, memory_.get(), bytes, &window));
    if (a.code != TR_SUCCESS) wrong_ = "tr_comm_register: " + a.text;
  }
  // The emulator's device memory may be touched by the host.
  std::uint8_t* get() const { return memory_.get(); }
  void fill(std::uint8_t value) { memory_.fill(value); }
  const std::string& wrong() const { return wrong_; }

 private:
  DeviceArray<std::uint8_t> memory_;
  std::string wrong_;
};

// Ranks in threads, each with windows `in` and `out` on its own device.
class CopiesOf : public testing::Test {
 protected:
  void make(int ranks, std::size_t bytes, int devices = 1) {
    comms_.emplace(ranks, [=](int r) { return r % devices; });
    ASSERT_TRUE(comms_->ok()) << comms_->made(0);
    devices_ = devices;
    in_.resize(static_cast<std::size_t>(ranks));
    out_.resize(in_.size());
    each([&](int r) {
      in_[static_cast<std::size_t>(r)] = std::make_unique<DeviceWindow>((*comms_)[r], bytes);
      out_[static_cast<std::size_t>(r)] = std::make_unique<DeviceWindow>((*comms_)[r], bytes);
      EXPECT_EQ(in(r).wrong() + out(r).wrong(), "");
    });
  }
  void destroy() { comms_.reset(); }
  void each(const std::function<void(int rank)>& body) const {
    on_threads(comms_->size(), [&](int r) {
      (void)cudaSetDevice(r % devices_);
      body(r);
    });
  }
  tr_comm_t comm(int r) const { return (*comms_)[r]; }
  DeviceWindow& in(int r) const { return *in_[static_cast<std::size_t>(r)]; }
  DeviceWindow& out(int r) const { return *out_[static_cast<std::size_t>(r)]; }
  Answer all_gather(int r, std::uint64_t count, tr_stream_t stream) const {
    return answer(tr_all_gather(in(r).get(), out(r).get(), count, TR_UINT8, comm(r), stream));
  }
  // Is part q of out what rank q has in in?
  bool is_gathered(int r, std::uint64_t count, std::uint8_t first) const {
    for (int q = 0; q < comms_->size(); ++q) {
      for (std::uint64_t i = 0; i < count; ++i) {
        if (out(r).get()[static_cast<std::uint64_t>(q) * count + i] != first + q) return false;
      }
    }
    return true;
  }

 private:
  std::optional<Comms> comms_;
  int devices_ = 1;
  std::vector<std::unique_ptr<DeviceWindow>> in_, out_;
};

}  // namespace treering::test
