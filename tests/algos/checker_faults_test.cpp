// The checker must see each kind of fault and say which step is wrong: small programs, each wrong
// in one way.
#include "algos/trace_prims.hpp"
#include "tests/algos/support.hpp"

namespace treering::algos {
namespace {

// The program that `algorithm` (a generic lambda over prims) leaves on n ranks.
template <class F>
Program written(Collective collective, int n, int chunks, F algorithm, bool in_place = false) {
  Program program;
  program.collective = collective;
  program.chunks = chunks;
  program.in_place = in_place;
  for (int rank = 0; rank < n; ++rank) {
    TracePrims p(rank, n, 0);
    algorithm(p);
    program.ranks.push_back(std::move(p).take());
  }
  return program;
}

void expect_fault(const Program& program, const std::string& text, int slices = 1, int slots = 4) {
  const Status status = check(program, slices, slots);
  EXPECT_FALSE(status.ok()) << "expected: " << text;
  EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
}

void neighbours_exchange(TracePrims& p) {
  const int other = 1 - p.rank();
  p.send(0, p.to(other));
  p.recv_reduce_copy(p.from(other), 0, Last::kYes);
}

TEST(Faults, NoneInACorrectProgram) {
  const Program program = written(Collective::kAllReduce, 2, 1, neighbours_exchange);
  const Status status = check(program, 4, 4);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Faults, TooFewSlots) {
  expect_fault(
      written(Collective::kAllReduce, 2, 1, neighbours_exchange),
      "stands still with 4 slices a chunk and 3 slots a link: rank 0 lane 0 step 0 (send chunk "
      "0: in[0] => 0->1) waits for a free slot of 0->1, where rank 1 has received 0 of 3; rank "
      "1 lane 0 step 0 (send chunk 0: in[0] => 1->0) waits for a free slot of 1->0, where rank 0 "
      "has received 0 of 3; rank 0 lane 0 step 0 (send chunk 0: in[0] => 0->1) again: they "
      "wait in a circle",
      4, 3);
}

TEST(Faults, BothReceiveFirst) {
  expect_fault(
      written(Collective::kAllReduce, 2, 1,
              [](TracePrims& p) {
                const int other = 1 - p.rank();
                p.recv_reduce_copy(p.from(other), 0, Last::kYes);
                p.send(0, p.to(other));
              }),
      "rank 0 lane 0 step 0 (recv_reduce_copy chunk 0: in[0], 1->0 => out[0] (last)) waits for "
      "message 0 of 1->0; rank 1");
}

TEST(Faults, NobodySends) {
  expect_fault(written(Collective::kBroadcast, 2, 1,
                       [](TracePrims& p) {
                         if (p.rank() == 1) p.recv(p.from(0), 0);
                       }),
               "waits for message 0 of 0->1, where nobody sends");
}

TEST(Faults, SenderEnds) {
  expect_fault(written(Collective::kBroadcast, 2, 1,
                       [](TracePrims& p) {
                         if (p.rank() == 0) {
                           p.send(0, p.to(1));
                           p.copy(0);
                         } else {
                           p.recv(p.from(0), 0);
                           p.recv(p.from(0), 0);
                         }
                       }),
               "waits for message 1 of 0->1, but rank 0 lane 0 has ended");
}

TEST(Faults, MessageLeftOver) {
  expect_fault(written(Collective::kBroadcast, 2, 1,
                       [](TracePrims& p) {
                         if (p.rank() == 0) {
                           p.send(0, p.to(1));
                           p.send(0, p.to(1));
                           p.copy(0);
                         } else {
                           p.recv(p.from(0), 0);
                         }
                       }),
               "2 messages are sent on the link 0->1, but rank 1 receives 1");
}

TEST(Faults, CastNotReceivedByAll) {
  expect_fault(written(Collective::kBroadcast, 3, 1,
                       [](TracePrims& p) {
                         if (p.rank() == 0) {
                           p.send(0, p.to_all());
                           p.send(0, p.to(2));
                           p.copy(0);
                         } else {
                           p.recv(p.rank() == 1 ? p.from_cast(0) : p.from(0), 0);
                         }
                       }),
               "1 messages are sent on the link 0->all, but rank 2 receives 0");
}

TEST(Faults, LinkUsedByTwoLanes) {
  expect_fault(written(Collective::kBroadcast, 2, 2,
                       [](TracePrims& p) {
                         for (int i = 0; i < 2; ++i) {
                           p.lane(i);
                           if (p.rank() == 0) p.send(i, p.to(1));
                         }
                       }),
               "rank 0 lane 1 step 0 (send chunk 1: in[1] => 0->1): lane 0 uses the link 0->1 too");
}

TEST(Faults, LinkToItself) {
  expect_fault(
      written(Collective::kBroadcast, 2, 1, [](TracePrims& p) { p.send(0, p.to(p.rank())); }),
      "the link 0->0 goes to its own rank");
}

TEST(Faults, LinkToNobody) {
  expect_fault(written(Collective::kBroadcast, 2, 1, [](TracePrims& p) { p.send(0, p.to(2)); }),
               "the link 0->2 is not between ranks of this program");
}

TEST(Faults, NoSuchChunk) {
  expect_fault(written(Collective::kAllReduce, 2, 1, [](TracePrims& p) { p.copy(1); }),
               "there is no chunk 1 of 1");
}

TEST(Faults, NoSuchBuffer) {
  expect_fault(written(Collective::kBroadcast, 2, 1, [](TracePrims& p) { p.copy(0); }),
               "rank 1 has no chunk 0 in its send buffer");
  expect_fault(written(Collective::kExscan, 2, 1, [](TracePrims& p) { p.copy(0); }),
               "rank 0 has no chunk 0 in its receive buffer");
}

TEST(Faults, TwoChunksInAStep) {
  expect_fault(written(Collective::kAllReduce, 2, 2, [](TracePrims& p) { p.copy(in(0), out(1)); }),
               "it is about the chunks 0 and 1 at once");
}

TEST(Faults, AnotherChunkReceivedThanSent) {
  expect_fault(written(Collective::kBroadcast, 2, 2,
                       [](TracePrims& p) {
                         if (p.rank() == 0) {
                           p.send(1, p.to(1));
                         } else {
                           p.recv(p.from(0), 0);
                         }
                       }),
               "the message on 0->1 carries chunk 1");
}

TEST(Faults, UnwrittenChunkRead) {
  expect_fault(written(Collective::kAllReduce, 2, 1,
                       [](TracePrims& p) { p.send(out(0), p.to(1 - p.rank())); }),
               "out[0] has not been written yet");
}

TEST(Faults, InputTwice) {
  expect_fault(written(Collective::kAllReduce, 2, 1,
                       [](TracePrims& p) {
                         const int other = 1 - p.rank();
                         p.send(0, p.to(other));
                         p.recv_reduce_copy(p.from(other), 0);
                         p.send(out(0), p.to(other));
                         p.recv_reduce_copy(p.from(other), out(0), out(0), Last::kYes);
                       }),
               "it folds rank 0's input twice: 0+1 of chunk 0 with 0+1 of chunk 0");
}

TEST(Faults, LastMissing) {
  expect_fault(
      written(Collective::kAllReduce, 2, 1,
              [](TracePrims& p) {
                p.send(0, p.to(1 - p.rank()));
                p.recv_reduce_copy(p.from(1 - p.rank()), 0);
              }),
      "rank 0 ends with out[0] = 0+1 of chunk 0: no step that completes this fold is marked as "
      "last");
}

TEST(Faults, LastTooEarly) {
  expect_fault(written(Collective::kReduce, 3, 1,
                       [](TracePrims& p) {
                         if (p.rank() == 2) p.send(0, p.to(1));
                         if (p.rank() == 1) {
                           p.recv_reduce_send(p.from(2), 0, p.to(0), Last::kYes);
                         }
                         if (p.rank() == 0) p.recv_reduce_copy(p.from(1), 0);
                       }),
               "it is marked as last, but its fold is not complete: [1+2] of chunk 0");
}

TEST(Faults, FinishedResultFoldedAgain) {
  expect_fault(written(Collective::kScan, 2, 1,
                       [](TracePrims& p) {
                         if (p.rank() == 0) {
                           p.copy(0, Last::kYes);
                           p.send(out(0), p.to(1));
                         } else {
                           p.recv_reduce_copy(p.from(0), 0, Last::kYes);
                         }
                       }),
               "it folds a finished result: [0] of chunk 0");
}

TEST(Faults, RanksOfAnAllReduceDiffer) {
  // Both are complete, but rank 0 folds (0+1)+2 and the others 0+1+2.
  expect_fault(written(Collective::kAllReduce, 3, 1,
                       [](TracePrims& p) {
                         p.send(0, p.to_all());
                         if (p.rank() == 0) {
                           p.recv_reduce_copy(p.from_cast(1), 0);
                           p.recv_reduce_copy(p.from_cast(2), out(0), out(0), Last::kYes);
                         } else {
                           p.recv_reduce_copy(p.from_all_casts(), 0, Last::kYes);
                         }
                       }),
               "their bits may differ");
}

TEST(Faults, OrderClaimedInVain) {
  const Algorithm* ring = find_algorithm(Collective::kAllReduce, "ring");
  Program program = make_program(*ring, 4);
  program.keeps_order = true;
  expect_fault(program, "which is not in rank order");
  const Algorithm* tree = find_algorithm(Collective::kAllReduce, "tree");
  program = make_program(*tree, 4);
  program.order_is_fixed = true;
  expect_fault(program, "which is not one fold in rank order");
}

TEST(Faults, UnevenClaimedInVain) {
  for (const auto& [collective, name] :
       {std::pair{Collective::kAllToAll, "bruck"}, std::pair{Collective::kGather, "binomial"},
        std::pair{Collective::kScatter, "binomial"}}) {
    Program program = make_program(*find_algorithm(collective, name), 5);
    program.uneven = true;
    expect_fault(program, "uneven: ");
  }
}

TEST(Faults, TwoLanesAndOneChunk) {
  expect_fault(written(Collective::kAllReduce, 2, 1,
                       [](TracePrims& p) {
                         const int other = 1 - p.rank();
                         p.lane(0);
                         p.send(0, p.to(other));
                         p.recv_reduce_copy(p.from(other), 0, Last::kYes);
                         p.lane(1);
                         p.copy(0);
                       }),
               "which of them comes first");
}

// In place only: a lane overwrites out(0) while another has not yet sent in(0).
TEST(Faults, RaceInPlaceOnly) {
  const auto algorithm = [](TracePrims& p) {
    const int n = p.size(), r = p.rank();
    for (int i = 1; i < n; ++i) {
      p.lane(i);
      p.send(mod(r + i, n), p.to(mod(r + i, n)));
      p.recv(p.from(mod(r - i, n)), mod(r - i, n));
    }
    p.lane(0);
    p.copy(r);
  };
  EXPECT_TRUE(check(written(Collective::kAllToAll, 3, 3, algorithm), 1, 2).ok());
  expect_fault(written(Collective::kAllToAll, 3, 3, algorithm, true), "overwritten (in place)");
}

TEST(Faults, WindowReadBeforePublish) {
  expect_fault(written(Collective::kAllGather, 2, 2,
                       [](TracePrims& p) {
                         p.copy(p.rank());
                         p.copy_from(1 - p.rank(), 1 - p.rank());
                         p.publish();
                         p.await_all();
                       }),
               "without knowing that rank ");
}

TEST(Faults, WindowLeftBeforeThePeerHasRead) {
  expect_fault(written(Collective::kAllGather, 2, 2,
                       [](TracePrims& p) {
                         p.publish();
                         p.copy(p.rank());
                         p.await_all();
                         p.copy_from(1 - p.rank(), 1 - p.rank());
                       }),
               "may end before");
}

TEST(Faults, PublishTakenForAChunk) {
  expect_fault(written(Collective::kAllGather, 2, 2,
                       [](TracePrims& p) {
                         if (p.rank() == 0) {
                           p.publish();
                         } else {
                           p.recv(p.from_cast(0), 0);
                         }
                       }),
               "the message is a publish");
  expect_fault(written(Collective::kAllGather, 2, 2,
                       [](TracePrims& p) {
                         if (p.rank() == 0) {
                           p.send(0, p.to_all());
                         } else {
                           p.await_all();
                         }
                       }),
               "the message is not a publish");
}

// Only one rank tells the others; they must not be believed to have told it.
TEST(Faults, BarrierLeftTooEarly) {
  expect_fault(written(Collective::kBarrier, 4, 1,
                       [](TracePrims& p) {
                         p.send(0, p.to(mod(p.rank() + 1, 4)));
                         p.recv(p.from(mod(p.rank() - 1, 4)), 0);
                       }),
               "rank 0 leaves the barrier before rank 1 has come");
}

}  // namespace
}  // namespace treering::algos
