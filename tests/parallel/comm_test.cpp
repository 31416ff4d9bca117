// Comm: what the operations compute, what they refuse, and what is counted. The bits of a ring's
// and of a tree's sum are those of a serial replay of its order (V3).
#include "treering/parallel/comm.hpp"

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "treering/parallel/rng.hpp"

#include "./ranks.hpp"
#include "matrices.hpp"

namespace {

using partest::must;
using partest::on_ranks;
using tr::par::Comm;
using tr::par::DType;
using tr::par::Operation;
using tr::par::Reduction;
using tr::par::ring_traffic;
using tr::par::Traffic;
using tr::par::View;
using Floats = std::vector<float>;

View view(Floats& x) {
  return tr::par::view_of(x.data(), 1, static_cast<std::int64_t>(x.size()), DType::kFloat32);
}
View part(Floats& x, int index, int parts) {
  const auto each = static_cast<std::int64_t>(x.size()) / parts;
  return view(x).columns(index * each, each);
}
Floats numbers(int rank, std::int64_t count) {
  Floats x(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = static_cast<float>(tr::par::random_symmetric(3, rank, i) / 3.0);  // sums must round
  }
  return x;
}

// Chunk c sets out one rank to the right of rank c and gains a summand at each hop; rank c is last.
Floats ring_replay(int n, std::int64_t count, std::int64_t chunk) {
  std::vector<Floats> inputs;
  for (int r = 0; r < n; ++r) inputs.push_back(numbers(r, count));
  Floats sum(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const int home = static_cast<int>(i / chunk);
    sum[i] = inputs[(home + 1) % n][i];
    for (int hop = 2; hop <= n; ++hop) sum[i] += inputs[(home + hop) % n][i];
  }
  return sum;
}
Floats rank_order_replay(int n, std::int64_t count) {
  Floats sum = numbers(0, count);
  for (int r = 1; r < n; ++r) {
    const Floats more = numbers(r, count);
    for (std::int64_t i = 0; i < count; ++i) sum[i] += more[i];
  }
  return sum;
}

// Of positions [first, last] the one with most factors of two is the root: what is below it, then
// its own, then what is above it. Position p is rank p - 1 - tree's.
float tree_fold(const std::vector<Floats>& inputs, std::int64_t i, int first, int last, int tree) {
  int root = first;
  for (int p = first; p <= last; ++p) {
    if ((p & -p) > (root & -root)) root = p;
  }
  float sum = inputs[static_cast<std::size_t>(root - 1 - tree)][static_cast<std::size_t>(i)];
  if (root > first) sum = tree_fold(inputs, i, first, root - 1, tree) + sum;
  if (root < last) sum = sum + tree_fold(inputs, i, root + 1, last, tree);
  return sum;
}
// Two trees, each for one half; the second's positions begin one higher (Sanders, Speck, Traeff).
Floats tree_replay(int n, std::int64_t count) {
  std::vector<Floats> inputs;
  for (int r = 0; r < n; ++r) inputs.push_back(numbers(r, count));
  Floats sum(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const int tree = i < count / 2 ? 0 : 1;
    sum[static_cast<std::size_t>(i)] = tree_fold(inputs, i, 1 + tree, n + tree, tree);
  }
  return sum;
}

struct ForcedRing {
  ForcedRing() { ::setenv("TR_ALGO", "all_reduce:ring,reduce_scatter:ring,all_gather:ring", 1); }
  ~ForcedRing() { ::unsetenv("TR_ALGO"); }
};

TEST(Comm, EveryOperationAmongThreeRanks) {
  on_ranks(3, [](std::unique_ptr<Comm> comm) {
    const int r = comm->rank(), left = (r + 2) % 3, right = (r + 1) % 3;
    const auto f = static_cast<float>(r);
    Floats x = {f, 10 * f}, got(2);
    must(comm->wait(must(comm->all_reduce(view(x), view(got)))));
    EXPECT_EQ(got, (Floats{3, 30}));
    must(comm->wait(must(comm->all_reduce(view(x), view(got), Reduction::kMax))));
    EXPECT_EQ(got, (Floats{2, 20}));

    Floats wide = {f, f + 1, f + 2, f + 3, f + 4, f + 5}, narrow(2), all(6);
    must(comm->wait(must(comm->reduce_scatter(view(wide), view(narrow)))));
    EXPECT_EQ(narrow, (Floats{3.0f + 6 * f, 6.0f + 6 * f}));
    must(comm->wait(must(comm->all_gather(view(narrow), view(all)))));
    EXPECT_EQ(all, (Floats{3, 6, 9, 12, 15, 18}));
    must(comm->wait(must(comm->all_to_all(view(wide), view(all)))));
    EXPECT_EQ(all, (Floats{2 * f, 2 * f + 1, 2 * f + 1, 2 * f + 2, 2 * f + 2, 2 * f + 3}));

    Floats root = r == 1 ? Floats{7, 8} : Floats{0, 0};
    must(comm->wait(must(comm->broadcast(view(root), 1))));
    EXPECT_EQ(root, (Floats{7, 8}));

    // Waits for a receive do not wait for the sends before it: nobody has taken those yet.
    Floats token = {f}, from_left(1), big(1 << 20, f), big_left(1 << 20);
    (void)must(comm->send(view(big), right));
    (void)must(comm->send(view(token), left));
    Floats from_right(1);
    must(comm->wait(must(comm->recv(view(from_right), right))));
    EXPECT_EQ(from_right[0], static_cast<float>(right));
    must(comm->barrier());
    (void)must(comm->recv(view(big_left), left));
    must(comm->wait_all());
    EXPECT_EQ(big_left.back(), static_cast<float>(left));
  });
}

TEST(Comm, MarksOfManyCollectives) {
  on_ranks(2, [](std::unique_ptr<Comm> comm) {
    std::vector<Floats> xs(40, Floats(1000));
    std::vector<Comm::Mark> marks;
    for (int i = 0; i < 40; ++i) {
      xs[i].assign(1000, static_cast<float>(i + comm->rank()));
      marks.push_back(must(comm->all_reduce(view(xs[i]), view(xs[i]))));
    }
    for (const int i : {5, 3, 20, 39, 0}) {
      must(comm->wait(marks[i]));
      EXPECT_EQ(xs[i], Floats(1000, static_cast<float>(2 * i + 1)));
    }
    must(comm->wait(0));
    must(comm->wait_all());
  });
}

TEST(Comm, AGroupOfOneCopies) {
  on_ranks(1, [](std::unique_ptr<Comm> comm) {
    Floats x = {1, 2, 3}, y(3);
    must(comm->wait(must(comm->all_reduce(view(x), view(y)))));
    EXPECT_EQ(y, x);
    must(comm->wait(must(comm->broadcast(view(x), 0))));
    must(comm->barrier());
    EXPECT_EQ(comm->traffic()[Operation::kAllReduce].calls, 1);
    EXPECT_EQ(comm->traffic().bytes(), 0);
  });
}

TEST(Comm, RefusesWhatDoesNotFit) {
  on_ranks(2, [](std::unique_ptr<Comm> comm) {
    Floats three(3), four(4);
    const auto expect = [](const auto& answered, const char* text) {
      ASSERT_FALSE(answered);
      EXPECT_EQ(answered.error().code, TR_INVALID_ARGUMENT);
      EXPECT_EQ(answered.error().message, text);
    };
    expect(comm->all_reduce(view(three), view(four)),
           "all_reduce: 3 elements to send and 4 to receive do not fit 2 ranks");
    expect(comm->reduce_scatter(view(three), view(four)),
           "reduce_scatter: 3 elements to send and 4 to receive do not fit 2 ranks");
    expect(comm->all_to_all(view(three), view(three)),
           "all_to_all: 3 elements do not make equal parts for 2 ranks");
    expect(comm->all_to_all(view(four), view(four)),
           "all_to_all: sends from and receives into the same memory");
    expect(comm->send(view(four), comm->rank()), comm->rank() == 0
                                                     ? "send: rank 0 is this rank itself"
                                                     : "send: rank 1 is this rank itself");
    expect(comm->broadcast(view(four), 2), "broadcast: rank 2 is none of 2");
    const View column{four.data(), 2, 1, 2, DType::kFloat32};
    expect(comm->all_reduce(column, column), "all_reduce: a view is not contiguous: pack it first");
    const View half{four.data(), 1, 4, 4, DType::kBFloat16};
    expect(comm->all_reduce(half, view(four)), "all_reduce: sends bf16, but receives fp32");
    expect(comm->split(std::vector{0}), "split: 1 colours for 2 ranks");
    EXPECT_EQ(comm->traffic().bytes(), 0);
  });
}

TEST(Comm, UnknownBackendsAreNamed) {
  const auto made = tr::par::make_world("pigeon");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, TR_UNSUPPORTED);
  EXPECT_EQ(made.error().message,
            "there is no backend 'pigeon' in this program; there is: treering");
}

TEST(Comm, GroupsBySplitKeepOrder) {
  on_ranks(4, [](std::unique_ptr<Comm> comm) {
    const std::vector<int> colors = {7, 3, 7, 3};
    const std::unique_ptr<Comm> group = must(comm->split(colors));
    EXPECT_EQ(group->size(), 2);
    EXPECT_EQ(group->rank(), comm->rank() / 2);
    Floats x = {static_cast<float>(comm->rank())};
    must(group->wait(must(group->all_reduce(view(x), view(x)))));
    EXPECT_EQ(x[0], comm->rank() % 2 == 0 ? 2.0f : 4.0f);
    const std::unique_ptr<Comm> counted =
        must(tr::par::make_count_comm(comm->rank(), 4)->split(colors));
    EXPECT_EQ(counted->rank(), group->rank());
    EXPECT_EQ(counted->size(), group->size());
  });
}

TEST(Comm, RegisteredMemoryGivesTheSameSums) {
  on_ranks(2, [](std::unique_ptr<Comm> comm) {
    const auto compute = must(tr::par::make_host_compute("ref"));
    const tr::par::Tensor x = must(tr::par::Tensor::make(
        compute->memory(), tr::par::Use::kGradients, 1, 1 << 16, DType::kFloat32));
    must(compute->fill(x.view(), comm->rank() + 1));
    const tr::par::Registration held = must(comm->register_memory(x.view()));
    EXPECT_NE(held, nullptr);
    // Too short to be worth it: nothing happens, on any rank.
    const tr::par::Tensor bias = must(
        tr::par::Tensor::make(compute->memory(), tr::par::Use::kGradients, 1, 8, DType::kFloat32));
    EXPECT_EQ(must(comm->register_memory(bias.view())), nullptr);
    must(comm->wait(must(comm->all_reduce(x.view(), x.view()))));
    EXPECT_EQ(static_cast<float*>(x.view().data)[65535], 3.0f);
  });
}

// V3: a ring all-reduce is its reduce-scatter, then its all-gather, in the order of the ring.
TEST(V3Rings, EqualTheSerialReplay) {
  const ForcedRing forced;
  for (const int n : {2, 3, 4, 8}) {
    const std::int64_t chunk = 48, count = n * chunk;  // whole cache lines: both cut alike
    const Floats expected = ring_replay(n, count, chunk);
    // Of two summands the order does not show.
    EXPECT_EQ(expected == rank_order_replay(n, count), n == 2);
    on_ranks(n, [&](std::unique_ptr<Comm> comm) {
      Floats x = numbers(comm->rank(), count), sum(x.size()), gathered(x.size());
      must(comm->wait(must(comm->all_reduce(view(x), view(sum)))));
      EXPECT_EQ(sum, expected);
      (void)must(comm->reduce_scatter(view(x), part(gathered, comm->rank(), n)));
      must(comm->wait(must(comm->all_gather(part(gathered, comm->rank(), n), view(gathered)))));
      EXPECT_EQ(gathered, expected);
    });
  }
}

TEST(V3Trees, EqualTheSerialReplay) {
  ::setenv("TR_ALGO", "all_reduce:tree", 1);
  for (const int n : {2, 3, 4, 5, 8}) {
    const std::int64_t count = 2 * 480;  // halves of whole cache lines
    const Floats expected = tree_replay(n, count);
    // A tree keeps the order of ranks, but from five on not where the brackets are.
    EXPECT_EQ(expected == rank_order_replay(n, count), n <= 4);
    on_ranks(n, [&](std::unique_ptr<Comm> comm) {
      Floats x = numbers(comm->rank(), count), sum(x.size());
      must(comm->wait(must(comm->all_reduce(view(x), view(sum)))));
      EXPECT_EQ(sum, expected) << n << " ranks";
    });
  }
  ::unsetenv("TR_ALGO");
}

TEST(V3Rings, RankOrderDependsOnNothingElse) {
  for (const int n : {2, 4, 8}) {
    for (const std::int64_t count : {24, 1200, 120'000}) {
      const Floats expected = rank_order_replay(n, count);
      on_ranks(n, [&](std::unique_ptr<Comm> comm) {
        must(comm->set_rank_order(true));
        Floats x = numbers(comm->rank(), count), sum(x.size()), gathered(x.size());
        must(comm->wait(must(comm->all_reduce(view(x), view(sum)))));
        EXPECT_EQ(sum, expected);
        (void)must(comm->reduce_scatter(view(x), part(gathered, comm->rank(), n)));
        must(comm->wait(must(comm->all_gather(part(gathered, comm->rank(), n), view(gathered)))));
        EXPECT_EQ(gathered, expected);
      });
    }
  }
}

// What the library chooses by itself on the host keeps rank order anyway; that it is asked to shows
// where a ring is forced, which cannot.
TEST(V3Rings, AreRefusedInRankOrder) {
  const ForcedRing forced;
  on_ranks(3, [](std::unique_ptr<Comm> comm) {
    must(comm->set_rank_order(true));
    Floats x(3);
    const auto answered = comm->all_reduce(view(x), view(x));
    must(comm->wait_all());
    ASSERT_FALSE(answered);
    EXPECT_NE(answered.error().message.find("TR_OPT_ORDERED asks for a fold in rank order"),
              std::string::npos)
        << answered.error().message;
    must(comm->set_rank_order(false));
    must(comm->wait(must(comm->all_reduce(view(x), view(x)))));
  });
}

// V14: by hand, for 100 fp32 elements over 3 ranks: chunks of 48, 48 and 4 (whole cache lines).
TEST(V14Counts, UnevenChunksToTheByte) {
  const auto sent = [](int rank) {
    return ring_traffic(Operation::kAllReduce, 100, DType::kFloat32, rank, 3);
  };
  EXPECT_EQ(sent(0).bytes, 4 * ((48 + 4) + (48 + 4)));   // not chunk 0, not chunk 1
  EXPECT_EQ(sent(1).bytes, 4 * ((48 + 4) + (48 + 48)));  // not chunk 1, not chunk 2
  EXPECT_EQ(sent(2).bytes, 4 * ((48 + 48) + (48 + 4)));  // not chunk 2, not chunk 0
  EXPECT_EQ(sent(0).messages, 4);
  // One element is chunk 0: rank 0 only spreads its sum, rank 3 only sets it out, others pass both.
  const std::int64_t messages[] = {1, 2, 2, 1};
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(ring_traffic(Operation::kAllReduce, 1, DType::kFloat32, r, 4).messages, messages[r]);
  }
  EXPECT_EQ(ring_traffic(Operation::kBroadcast, 10, DType::kBFloat16, 1, 4, 2).bytes,
            0);  // the chain's end
  EXPECT_EQ(ring_traffic(Operation::kBroadcast, 10, DType::kBFloat16, 2, 4, 2).bytes, 20);
}

TEST(V14Counts, WhatRanksThatDoNotExistWouldSend) {
  const auto comm = tr::par::make_count_comm(1, 512);
  Floats x(512 * 64), y(x.size());
  (void)must(comm->all_reduce(view(x), view(x)));
  (void)must(comm->all_gather(part(x, 1, 512), view(x)));
  (void)must(comm->all_to_all(view(x), view(y)));
  (void)must(comm->send(view(x), 2));
  (void)must(comm->recv(view(x), 0));
  must(comm->barrier());
  const Traffic& traffic = comm->traffic();
  EXPECT_EQ(traffic[Operation::kAllReduce].bytes, 2 * 511 * 256);
  EXPECT_EQ(traffic[Operation::kAllReduce].messages, 2 * 511);
  EXPECT_EQ(traffic[Operation::kAllGather].bytes, 511 * 256);
  EXPECT_EQ(traffic[Operation::kAllToAll].messages, 511);
  EXPECT_EQ(traffic[Operation::kSend].bytes, 512 * 256);
  EXPECT_EQ(traffic[Operation::kRecv].bytes, 0);
  EXPECT_EQ(traffic[Operation::kRecv].calls, 1);
  EXPECT_EQ(traffic.bytes(), 256 * (2 * 511 + 511 + 511 + 512));
}

}  // namespace
