// Ranks on one device and on several; several communicators at once, and how many fit; what is
// left when they are gone.
#include "core/log.hpp"
#include "cuda/support.hpp"
#include "cudasim/control.hpp"

namespace treering::test {
namespace {

// The emulator's default: 24 multiprocessors of 1024 threads; a communicator reserves 24 blocks of
// 256 threads a rank, if they fit.
constexpr int kCommsOfADevice = 4;

int device_now() {
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  return device;
}

TEST(Devices, RanksMaySpreadOverThem) {
  const std::function<int(int)> layouts[] = {[](int) { return 0; }, [](int) { return 3; },
                                             [](int r) { return r; }, [](int r) { return 3 - r; },
                                             [](int r) { return r / 2; }};
  for (const auto& device_of : layouts) {
    constexpr int kRanks = 4;
    const Comms comms(kRanks, device_of);
    ASSERT_TRUE(comms.ok()) << comms.made(0);
    on_threads(kRanks, [&](int r) {
      ASSERT_EQ(cudaSetDevice(device_of(r)), cudaSuccess);
      for (const std::uint64_t count : {9, 30000}) {
        const DeviceArray<float> data(count, static_cast<float>(r + 1)), all(kRanks * count, 0);
        EXPECT_TR(
            tr_all_reduce(data.get(), data.get(), count, TR_FLOAT32, TR_SUM, comms[r], nullptr));
        EXPECT_EQ(data.wrong(10), 0u);
        EXPECT_TR(tr_all_to_all(all.get(), all.get(), count, TR_FLOAT32, comms[r], nullptr));
        EXPECT_TR(tr_all_gather(data.get(), all.get(), count, TR_FLOAT32, comms[r], nullptr));
        EXPECT_EQ(all.wrong(10), 0u);
      }
    });
  }
}

// Whatever the call, and whether it is one that works.
TEST(Devices, TheCallersCurrentDeviceStaysWhatItWas) {
  const auto device_of = [](int r) { return r; };
  Comms comms(2, device_of);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  on_threads(2, [&](int r) {
    ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
    const DeviceArray<float> data(1000, 1);
    const UserStream stream;
    ASSERT_EQ(cudaSetDevice(2), cudaSuccess);  // not the rank's
    EXPECT_TR(tr_all_reduce(data.get(), data.get(), 1000, TR_FLOAT32, TR_SUM, comms[r], nullptr));
    EXPECT_EQ(device_now(), 2);
    EXPECT_TR(
        tr_all_reduce(data.get(), data.get(), 1000, TR_FLOAT32, TR_SUM, comms[r], stream.get()));
    EXPECT_EQ(device_now(), 2);
    EXPECT_TR(tr_barrier(comms[r], stream.get()));
    EXPECT_TR(tr_stream_synchronize(stream.get()));
    EXPECT_EQ(device_now(), 2);
    EXPECT_EQ(data.wrong(4), 0u);
    EXPECT_TR(tr_group_start());
    EXPECT_TR(tr_broadcast(data.get(), data.get(), 10, TR_FLOAT32, 0, comms[r], nullptr));
    EXPECT_TR(tr_group_end());
    EXPECT_EQ(device_now(), 2);
    EXPECT_EQ(tr_broadcast(data.get(), nullptr, 10, TR_FLOAT32, 0, comms[r], nullptr),
              TR_INVALID_ARGUMENT);
    EXPECT_EQ(device_now(), 2);

    // A child lies on the device that is current, as any communicator.
    tr_comm_t child = nullptr;
    EXPECT_TR(tr_comm_split(comms[r], 0, r, &child));
    EXPECT_EQ(device_now(), 2);
    EXPECT_TR(tr_comm_finalize(child));
    EXPECT_TR(tr_comm_destroy(child));
    EXPECT_EQ(device_now(), 2);
  });
  // tr_comm_init_all makes its ranks on this thread's device, and leaves it.
  ASSERT_EQ(cudaSetDevice(3), cudaSuccess);
  tr_comm_t all[2];
  ASSERT_EQ(tr_comm_init_all(all, 2), TR_SUCCESS) << tr_get_last_error();
  EXPECT_EQ(device_now(), 3);
  for (tr_comm_t comm : all) EXPECT_TR(tr_comm_destroy(comm));
  EXPECT_EQ(device_now(), 3);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

// Each rank's kernel of one communicator waits for one that the other rank starts second: they run
// side by side only because their blocks are reserved.
TEST(Communicators, UsedInOppositeOrdersDoNotBlockEachOther) {
  const Comms one(2), other(2);
  ASSERT_TRUE(one.ok() && other.ok()) << other.made(0);
  on_threads(2, [&](int r) {
    const UserStream a, b;
    for (const std::uint64_t count : {100, 50000}) {
      const DeviceArray<float> x(count, 1), y(count, 2);
      for (int i = 0; i < 5; ++i) {
        for (const bool first : {r == 0, r != 0}) {
          const Comms& comms = first ? one : other;
          float* const data = first ? x.get() : y.get();
          EXPECT_TR(tr_all_reduce(data, data, count, TR_FLOAT32, TR_SUM, comms[r],
                                  first ? a.get() : b.get()));
        }
      }
      EXPECT_TR(tr_stream_synchronize(a.get()));
      EXPECT_TR(tr_stream_synchronize(b.get()));
      EXPECT_EQ(x.wrong(32), 0u);
      EXPECT_EQ(y.wrong(64), 0u);
    }
  });
}

// Two blocks a rank, for sixteen lanes, none of whose messages fit into their slots.
TEST(Communicators, FewBlocksServeManyPeersAtOnce) {
  constexpr int kRanks = 8;
  const Env channels("TR_CUDA_CHANNELS", "1");
  const Env slots("TR_CUDA_SLOT_BYTES", "1024");
  const Comms comms(kRanks);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  on_threads(kRanks, [&](int r) {
    constexpr std::uint64_t kCount = 5000;  // int32: 20 slots
    const DeviceArray<std::int32_t> in(kRanks * kCount, -1), out(kRanks * kCount, -1);
    for (std::uint64_t i = 0; i < kRanks * kCount; ++i) {
      in.get()[i] = static_cast<std::int32_t>(i) * kRanks + r;
    }
    EXPECT_TR(tr_group_start());
    // First all that it sends, and in one order on all ranks: no receive is near its send.
    for (int q = 0; q < kRanks; ++q) {
      EXPECT_TR(tr_send(in.get() + q * kCount, kCount, TR_INT32, q, comms[r], nullptr));
    }
    for (int q = 0; q < kRanks; ++q) {
      EXPECT_TR(tr_recv(out.get() + q * kCount, kCount, TR_INT32, q, comms[r], nullptr));
    }
    EXPECT_TR(tr_group_end());
    std::size_t wrong = 0;
    for (int q = 0; q < kRanks; ++q) {
      for (std::uint64_t i = 0; i < kCount; ++i) {
        const auto sent = static_cast<std::int32_t>(r * kCount + i) * kRanks + q;
        wrong += out.get()[q * kCount + i] != sent ? 1 : 0;
      }
    }
    EXPECT_EQ(wrong, 0u) << "rank " << r;
  });
}

// Nothing that a destructor does may wait for other communicators' kernels.
TEST(Communicators, OneIsDestroyedWhileAnotherWaits) {
  const Env timeout("TR_TIMEOUT_S", "5");
  const Comms waits(2), ends(2);
  ASSERT_TRUE(waits.ok() && ends.ok());
  on_threads(2, [&](int r) {
    const DeviceArray<float> data(100, 1);
    const UserStream stream;
    const auto sum = [&] {
      EXPECT_TR(
          tr_all_reduce(data.get(), data.get(), 100, TR_FLOAT32, TR_SUM, waits[r], stream.get()));
    };
    if (r == 0) sum();
    EXPECT_TR(tr_comm_destroy(ends[r]));  // rank 1's call comes after its destroy
    if (r == 1) sum();
    EXPECT_TR(tr_stream_synchronize(stream.get()));
    EXPECT_EQ(data.wrong(2), 0u);
  });
}

TEST(Communicators, ThatDoNotFitAreRefusedOnAllRanks) {
  constexpr int kRanks = 2;
  std::vector<std::unique_ptr<Comms>> all;
  // Rank 0's device fills up; rank 1's has room.
  const auto device_of = [](int r) { return r; };
  for (int i = 0; i < kCommsOfADevice; ++i) {
    if (i < kCommsOfADevice - 1) {
      all.push_back(std::make_unique<Comms>(kRanks, device_of));
    } else {
      all.push_back(std::make_unique<Comms>(1));
    }
    ASSERT_TRUE(all.back()->ok()) << all.back()->made(0);
  }
  {
    const Comms refused(kRanks, device_of);
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(refused.made(r).code, TR_UNSUPPORTED) << refused.made(r);
      EXPECT_EQ(
          refused.made(r).text,
          "unsupported: GPU 0000:10:00.0 holds 96 blocks at once, of which other "
          "communicators have reserved 96; 1 rank of this one needs 6 even with 1 channel: "
          "destroy some communicators, give them fewer channels (TR_CUDA_CHANNELS), or use more "
          "GPUs");
    }
    const Env fewer("TR_CUDA_CHANNELS", "1");
    EXPECT_FALSE(Comms(kRanks, device_of).ok());  // full is full
  }
  all.pop_back();
  {
    const Comms fits(kRanks, device_of);  // destroyed ones have given their blocks back
    EXPECT_TRUE(fits.ok()) << fits.made(0);
  }
  {
    const Env fewer("TR_CUDA_CHANNELS", "2");
    const Comms half(kRanks, device_of), other_half(kRanks, device_of);
    EXPECT_TRUE(half.ok() && other_half.ok()) << other_half.made(0);
  }
}

// Eight ranks of 24 blocks would need 192 of a device's 96; with two channels they need all of
// them.
TEST(Communicators, HaveAsManyChannelsAsFit) {
  constexpr int kRanks = 8;
  set_log_level(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  {
    const Comms comms(kRanks);
    const std::string log = testing::internal::GetCapturedStderr();
    set_log_level(LogLevel::kWarn);
    ASSERT_TRUE(comms.ok()) << comms.made(0);
    const std::string why =
        "GPU 0000:10:00.0 holds 96 blocks at once, of which other communicators have reserved 0; 8 "
        "ranks of this one need 192 with 4 channels";
    const std::string line = "rank 0 info: 2 channels instead of 4: " + why + "\n";
    EXPECT_NE(log.find(line), std::string::npos) << log;
    EXPECT_EQ(log.find(" channels instead of ", log.find(line) + line.size()), std::string::npos);
    on_threads(kRanks, [&](int r) {
      const char* text = nullptr;
      EXPECT_TR(tr_comm_explain(comms[r], &text));
      EXPECT_NE(std::string(text).find("on the device: channels 2, fewer than usual: " + why),
                std::string::npos)
          << text;
      const DeviceArray<float> data(30000, 1);
      EXPECT_TR(
          tr_all_reduce(data.get(), data.get(), 30000, TR_FLOAT32, TR_SUM, comms[r], nullptr));
      EXPECT_EQ(data.wrong(kRanks), 0u);
    });
    const Comms none(1);  // full
    EXPECT_EQ(none.made(0).code, TR_UNSUPPORTED) << none.made(0);
  }
  {
    const Env three("TR_CUDA_CHANNELS", "3");
    const Comms comms(kRanks);
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(comms.made(r).code, TR_UNSUPPORTED) << comms.made(r);
      EXPECT_EQ(comms.made(r).text,
                "unsupported: TR_CUDA_CHANNELS=3 does not fit: GPU 0000:10:00.0 holds 96 blocks at "
                "once, of which other communicators have reserved 0; 8 ranks of this one need 144 "
                "with 3 channels; 2 would");
    }
  }
  // What two communicators leave: the third has the rest, on both of its devices alike.
  const Comms one(2), other(1);  // 72 blocks of device 0
  const Comms third(3, [](int r) { return r / 2; });
  ASSERT_TRUE(one.ok() && other.ok() && third.ok()) << third.made(0);
  for (int r = 0; r < 3; ++r) {
    const char* text = nullptr;
    EXPECT_TR(tr_comm_explain(third[r], &text));
    EXPECT_NE(std::string(text).find("on the device: channels 2, fewer than usual: GPU "
                                     "0000:10:00.0 holds 96 blocks at once, of which other "
                                     "communicators have reserved 72; 2 ranks of this one need 48"),
              std::string::npos)
        << text;
  }
}

TEST(Communicators, TwoHundredLeaveNothing) {
  cudasim::Live peak;
  const auto device_of = [](int r) { return r; };
  for (int i = 0; i < 200; ++i) {
    {
      const Comms comms(2, device_of);
      ASSERT_TRUE(comms.ok()) << comms.made(0);
      if (i % 20 == 0) {
        on_threads(2, [&](int r) {
          ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
          const DeviceArray<float> data(100, 1);
          EXPECT_TR(
              tr_all_reduce(data.get(), data.get(), 100, TR_FLOAT32, TR_SUM, comms[r], nullptr));
          EXPECT_EQ(data.wrong(2), 0u);
        });
      }
    }
    // A rank that leaves first keeps its slab until the other has left: the second round has all.
    if (i == 3) peak = cudasim::live();
  }
  const cudasim::Live after = cudasim::live();
  EXPECT_EQ(after.streams, peak.streams);
  EXPECT_EQ(after.events, peak.events);
  EXPECT_EQ(after.allocations, peak.allocations);
  EXPECT_EQ(after.graphs, peak.graphs);
}

// The ranks that have a GPU must not keep memory for each communicator that does without.
TEST(Communicators, ThatDoWithoutGpusLeaveNothingEither) {
  const Env quiet("TR_LOG", "off");
  cudasim::Live peak;
  for (int i = 0; i < 10; ++i) {
    cudasim::fail_call("cudaDeviceGetPCIBusId", 1, cudaErrorUnknown);
    const Comms comms(2);
    ASSERT_TRUE(comms.ok()) << comms.made(0);
    if (i == 1) peak = cudasim::live();
  }
  EXPECT_EQ(cudasim::live(), peak);
}

}  // namespace
}  // namespace treering::test
