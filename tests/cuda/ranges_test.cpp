// Names and nesting of the ranges of calls on device memory.
#include "support/ranges.hpp"

#include <gtest/gtest.h>
#include <regex>
#include <string>

#include "cuda/support.hpp"

namespace treering::test {
namespace {

constexpr int kRanks = 2;

std::string ranges_of(int rank) {
  const std::regex owner(" \\| communicator \\d+: rank " + std::to_string(rank) + " of 2\n");
  return std::regex_replace(ranges_of_this_thread(), owner, "\n");
}

class Ranges : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(comms_.ok()) << comms_.made(0); }
  Comms comms_{kRanks};
};

TEST_F(Ranges, HaveTheProtocol) {
  on_threads(kRanks, [&](int r) {
    const UserStream stream;
    const DeviceArray<float> x(1 << 20, 1);
    EXPECT_TR(tr_comm_set_algorithm(comms_[r], "all_reduce", "ring"));
    for (const std::uint64_t count : {1000, 1 << 20}) {  // blocking, then on a stream
      for (const tr_stream_t where : {tr_stream_t{}, stream.get()}) {
        EXPECT_TR(tr_all_reduce(x.get(), x.get(), count, TR_FLOAT32, TR_SUM, comms_[r], where));
      }
    }
    EXPECT_TR(tr_barrier(comms_[r], stream.get()));
    EXPECT_TR(tr_stream_synchronize(stream.get()));
    EXPECT_EQ(ranges_of(r),
              "all_reduce ring LL 4000 B | 4000\n"
              "all_reduce ring LL 4000 B | 4000\n"
              "all_reduce ring Simple 4194304 B | 4194304\n"
              "all_reduce ring Simple 4194304 B | 4194304\n"
              "barrier direct LL | none\n");
  });
}

TEST_F(Ranges, MessagesOfAGroupAreOneLaunch) {
  on_threads(kRanks, [&](int r) {
    const DeviceArray<float> out(10, 1), in(10, 0);
    EXPECT_TR(tr_group_start());
    EXPECT_TR(tr_send(out.get(), 10, TR_FLOAT32, 1 - r, comms_[r], nullptr));
    EXPECT_TR(tr_recv(in.get(), 10, TR_FLOAT32, 1 - r, comms_[r], nullptr));
    EXPECT_TR(tr_group_end());
    EXPECT_EQ(in.wrong(1), 0u);
    if (r == 0) {
      EXPECT_TR(tr_send(out.get(), 4, TR_FLOAT32, 1, comms_[r], nullptr));
    } else {
      EXPECT_TR(tr_recv(in.get(), 4, TR_FLOAT32, 0, comms_[r], nullptr));
    }
    EXPECT_EQ(ranges_of(r),
              std::string("group | none\n"
                          "  sends and recvs Simple 80 B | 80\n") +
                  (r == 0 ? "send Simple 16 B, rank 1 | 16\n" : "recv Simple 16 B, rank 0 | 16\n"));
  });
}

}  // namespace
}  // namespace treering::test
