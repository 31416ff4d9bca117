// Device engines without communicators: ranks as threads that meet in memory, calls with plans of
// the test's own, and the links' tables at hand.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "algos/registry.hpp"
#include "bootstrap/rendezvous.hpp"
#include "engine/device_engine.hpp"
#include "transports/device_links.hpp"

namespace treering::test {

class Meeting {
 public:
  explicit Meeting(int size) : size_(size), blobs_(static_cast<std::size_t>(size)) {}
  std::vector<std::string> gather(int rank, const std::string& blob) {
    std::unique_lock lock(mutex_);
    const int round = round_;
    blobs_[static_cast<std::size_t>(rank)] = blob;
    if (++came_ == size_) {
      result_ = blobs_;
      came_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round; });
    }
    return result_;
  }
  int size() const { return size_; }

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int came_ = 0, round_ = 0;
  std::vector<std::string> blobs_, result_;
};

class ThreadRendezvous final : public Rendezvous {
 public:
  ThreadRendezvous(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return meeting_.size(); }
  Secret link_key() const override { return {'t', 'e', 's', 't'}; }
  Result<std::vector<std::string>> all_gather(const std::string& blob) override {
    return meeting_.gather(rank_, blob);
  }

 private:
  Meeting& meeting_;
  int rank_;
};

// The engines of `size` ranks on device 0; what was wrong is error().
class Engines {
 public:
  Engines(int size, const DeviceLinkOptions& options, std::int64_t timeout_ms = 20'000)
      : channels_(options.channels), engines_(static_cast<std::size_t>(size)) {
    Meeting meeting(size);
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        ThreadRendezvous rendezvous(meeting, r);
        Result<std::unique_ptr<DeviceLinks>> links = connect_device(rendezvous, options);
        if (!links.ok() || links.value() == nullptr) return fail(links.status().message());
        auto made = make_device_engine(std::move(links).value(), timeout_ms);
        if (!made.ok()) return fail(made.status().message());
        engines_[static_cast<std::size_t>(r)] = std::move(made).value();
      });
    }
    for (std::thread& t : threads) t.join();
  }
  const std::string& error() const { return error_; }
  int size() const { return static_cast<int>(engines_.size()); }
  DeviceEngine& operator[](int rank) { return *engines_[static_cast<std::size_t>(rank)]; }

  // Starts a ring all-reduce (sum) of this rank, in slices of slice_elems.
  Status start_sum(int rank, const std::int32_t* in, std::int32_t* out, std::uint64_t count,
                   DeviceProtocol protocol, std::uint64_t slice_elems) {
    DevicePlan plan;
    plan.algorithm = "ring";
    plan.protocol = protocol;
    plan.slice_elems = slice_elems;
    return start(rank, in, out, count, plan, {});
  }

  // Makes the window of start_window_sum, `bytes` at memory(rank); what was wrong is error().
  void add_window(const std::function<void*(int)>& memory, std::size_t bytes) {
    windows_.resize(engines_.size());
    Meeting meeting(size());
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r) {
      threads.emplace_back([&, r] {
        ThreadRendezvous rendezvous(meeting, r);
        Result<WindowMap> map = (*this)[r].links().map_windows(memory(r), bytes, rendezvous);
        if (!map.ok()) return fail(map.status().message());
        windows_[static_cast<std::size_t>(r)].push_back(std::move(map).value());
      });
    }
    for (std::thread& t : threads) t.join();
  }
  // Starts a sum by the window algorithm, in place.
  Status start_window_sum(int rank, std::uint64_t count) {
    const auto me = static_cast<std::size_t>(rank);
    DevicePlan plan;
    plan.algorithm = "window";
    plan.windows = &windows_[me];
    auto* const data = reinterpret_cast<std::int32_t*>(windows_[me].front().base[me]);
    return start(rank, data, data, count, plan, {});
  }

  // Starts a send to the next rank and a receive from the last one, in slices of slice_elems.
  Status start_pass(int rank, const std::int32_t* in, std::int32_t* out, std::uint64_t count,
                    std::uint64_t slice_elems) {
    Call calls[2];
    MessageCall messages[2];
    for (int i = 0; i < 2; ++i) {
      calls[i].collective = Collective::kSendRecv;
      calls[i].type = Type::kInt32;
      calls[i].count = count;
      calls[i].root = (rank + (i == 0 ? 1 : size() - 1)) % size();
      calls[i].is_send = i == 0;
      messages[i] = {&calls[i], count, slice_elems};
    }
    calls[0].in = reinterpret_cast<const std::byte*>(in);
    calls[1].out = reinterpret_cast<std::byte*>(out);
    void* const own = nullptr;
    return (*this)[rank].launch_messages(messages, {&own, 1});
  }

 private:
  // An all-reduce of all channels, plan.algorithm's.
  Status start(int rank, const std::int32_t* in, std::int32_t* out, std::uint64_t count,
               DevicePlan plan, WindowToken token) {
    plan.chunks = algos::find_algorithm(Collective::kAllReduce, plan.algorithm)->chunks(size());
    plan.channels = channels_;
    Call call;
    call.collective = Collective::kAllReduce;
    call.type = Type::kInt32;
    call.op = RedOp::kSum;
    call.count = count;
    call.in = reinterpret_cast<const std::byte*>(in);
    call.out = reinterpret_cast<std::byte*>(out);
    call.in_part = call.out_part = Partition::cut(count, plan.chunks, 16);
    call.token = token;
    const CollectiveCall alone{&call, plan, 7};
    return (*this)[rank].launch({&alone, 1}, nullptr);
  }
  void fail(const std::string& why) {
    std::lock_guard lock(mutex_);
    error_ += why.empty() ? "no device" : why;
  }

  int channels_;
  std::vector<std::unique_ptr<DeviceEngine>> engines_;
  std::vector<std::vector<WindowMap>> windows_;  // [rank][window]
  std::mutex mutex_;
  std::string error_;
};

}  // namespace treering::test
