// The Prims of lesson 4 carries out what the engine would, in every way of writing it down, and
// refuses what it cannot.
#include <gtest/gtest.h>
#include <vector>

#include "treering/treering.hpp"

#include "09_custom_algorithm_live.hpp"
#include "ranks.hpp"

namespace {

using example::Live;
namespace algos = treering::algos;
using algos::mod;

// A ring, with separate receives and sends of what lies in the result.
template <class P>
void kept_then_sent(P& p) {
  const int n = p.size(), r = p.rank();
  p.copy(r);
  for (int i = 0; i + 1 < n; ++i) {
    p.send(algos::out(mod(r - i, n)), p.to(mod(r + 1, n)));
    p.recv(p.from(mod(r - 1, n)), mod(r - i - 1, n));
  }
}

// The same, but for the first send, which is of the input.
template <class P>
void given_then_sent(P& p) {
  const int n = p.size(), r = p.rank();
  for (int i = 0; i + 1 < n; ++i) {
    const int c = mod(r - i, n);
    p.send(i == 0 ? algos::in(c) : algos::out(c), p.to(mod(r + 1, n)));
    p.recv(p.from(mod(r - 1, n)), mod(c - 1, n));
  }
  p.copy(r);
}

// Handed on as it comes; the ring runs to the left.
template <class P>
void handed_on(P& p) {
  const int n = p.size(), r = p.rank();
  p.copy(r);
  if (n == 1) return;
  p.send(r, p.to(mod(r - 1, n)));
  for (int i = 1; i < n - 1; ++i) {
    p.recv_copy_send(p.from(mod(r + 1, n)), mod(r + i, n), p.to(mod(r - 1, n)));
  }
  p.recv(p.from(mod(r + 1, n)), mod(r - 1, n));
}

// Every rank's own input to every other.
template <class P>
void straight(P& p) {
  const int n = p.size(), r = p.rank();
  p.copy(r);
  for (int i = 1; i < n; ++i) p.send(r, p.to(mod(r + i, n)));
  for (int i = 1; i < n; ++i) p.recv(p.from(mod(r - i, n)), mod(r - i, n));
}

using Algorithm = void (*)(Live&);

class LiveAllGather : public testing::TestWithParam<Algorithm> {};

TEST_P(LiveAllGather, GathersEveryChunk) {
  for (int n = 1; n <= 5; ++n) {
    run_ranks(n, [n](tr::Communicator& comm) {
      tr::Stream stream = std::move(tr::Stream::create()).or_throw();
      Live live(comm, stream, 100.0f + static_cast<float>(comm.rank()));
      GetParam()(live);
      std::vector<float> expected;
      for (int q = 0; q < n; ++q) expected.push_back(100.0f + static_cast<float>(q));
      EXPECT_EQ(live.finish(), expected) << "rank " << comm.rank() << " of " << n;
      EXPECT_OK(comm.barrier());
      EXPECT_OK(stream.destroy());
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Forms, LiveAllGather,
                         testing::Values(kept_then_sent<Live>, given_then_sent<Live>,
                                         handed_on<Live>, straight<Live>));

// `wrong`, by a single rank: ends with a sentence.
void expect_refusal(Algorithm wrong, const char* sentence) {
  const auto run = [wrong] {
    auto comms = tr::Communicator::in_process(1).or_throw();
    tr::Stream stream = std::move(tr::Stream::create()).or_throw();
    Live live(comms[0], stream, 1.0f);
    wrong(live);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(1), sentence);
}

TEST(LiveRefuses, WhatItCannotDo) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  expect_refusal([](Live& p) { p.recv_reduce_copy(0, 0); }, "knows send, recv");
  expect_refusal([](Live& p) { p.recv_reduce_send(0, 0, 0); }, "knows send, recv");
  expect_refusal([](Live& p) { p.recv_send(0, 0, 0); }, "knows send, recv");
  expect_refusal([](Live& p) { p.send(1, 0); }, "its own chunk");
  expect_refusal([](Live& p) { p.send(algos::out(0), 0); }, "has been received");
  expect_refusal([](Live& p) { p.copy(0), p.copy(0); }, "filled once");
}

}  // namespace
