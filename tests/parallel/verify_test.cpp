// The proof of schedules must find what is wrong, and say it.
#include <algorithm>
#include <gtest/gtest.h>
#include <utility>

#include "treering/parallel/schedule.hpp"

namespace tr::par {
namespace {

Schedule parsed(std::string_view csv) {
  Result<Schedule> schedule = schedule_from_csv(csv);
  if (!schedule) ADD_FAILURE() << schedule.error().message;
  return schedule ? std::move(schedule).value() : Schedule{};
}
std::string fault(const Schedule& schedule) {
  const Result<ScheduleFacts> facts = verify(schedule);
  return facts ? "none" : facts.error().message;
}
Schedule sound(std::string_view name = "1f1b", int p = 2, int m = 2, int v = 1) {
  Result<Schedule> schedule = make_schedule(name, p, m, v);
  if (!schedule) ADD_FAILURE() << schedule.error().message;
  return schedule ? std::move(schedule).value() : Schedule{};
}

TEST(Verify, ReceivingFirstIsADeadlock) {
  EXPECT_EQ(fault(parsed("0,RG,0,0\n0,F,0,0\n0,SA,0,0\n0,B,0,0\n0,R,0,0\n"
                         "1,RA,1,0\n1,F,1,0\n1,B,1,0\n1,SG,1,0\n1,R,1,0\n")),
            "deadlock: rank 0, action 0 (RG0.0) waits for rank 1 to send; rank 1, action 0 (RA0.1) "
            "waits for rank 0 to send; so none goes on: one of them must send what it has before "
            "it waits");
}

TEST(Verify, ADeadlockOfThreeNamesAllThree) {
  Schedule schedule = sound("1f1b", 3, 1);
  // Rank 0 wants its gradient before it sends anything; the others wait behind it.
  schedule.actions[0] = parsed("0,RG,0,0\n0,F,0,0\n0,SA,0,0\n0,B,0,0\n0,R,0,0").actions[0];
  EXPECT_EQ(fault(schedule),
            "deadlock: rank 0, action 0 (RG0.0) waits for rank 1 to send; rank 1, action 0 (RA0.1) "
            "waits for rank 0 to send; so none goes on: one of them must send what it has before "
            "it waits");
  // A ring of three: interleaved stages, each rank waiting for the one before it.
  schedule = sound("interleaved", 3, 3, 2);
  for (std::vector<Action>& actions : schedule.actions) {
    const Action::Kind first = Action::Kind::kRecvActivation;
    std::stable_partition(actions.begin(), actions.end(),
                          [&](const Action& action) { return action.kind == first; });
  }
  const std::string text = fault(schedule);
  EXPECT_EQ(text.rfind("deadlock: ", 0), 0u) << text;
  for (const char* rank : {"rank 0, action", "rank 1, action", "rank 2, action"}) {
    EXPECT_NE(text.find(rank), std::string::npos) << text;
  }
}

TEST(Verify, AMessageThatNobodySends) {
  Schedule schedule = sound("1f1b", 2, 1);
  std::erase(schedule.actions[1], Action{Action::Kind::kSendGradient, 1, 0});
  EXPECT_EQ(
      fault(schedule),
      "rank 0, action 2 (RG0.0) waits for rank 1 to send; rank 1 comes to its end without it");
}

TEST(Verify, NamesWhatIsOutOfPlace) {
  using Kind = Action::Kind;
  const auto with = [](Schedule schedule, int rank, std::size_t at, Action action) {
    schedule.actions[rank][at] = action;
    return fault(schedule);
  };
  // 0: F0 SA0 F1 SA1 RG0 B0 RG1 B1 R    1: RA0 F0 B0 SG0 RA1 F1 B1 R SG1
  EXPECT_EQ(with(sound(), 0, 2, {Kind::kForward, 0, 0}),
            "rank 0, action 2 (F0.0): micro-batch 1 is next; a stage runs them in order");
  EXPECT_EQ(with(sound(), 0, 0, {Kind::kForward, 1, 0}),
            "rank 0, action 0 (F0.1): stage 1 is on rank 1");
  EXPECT_EQ(with(sound(), 0, 0, {Kind::kForward, 2, 0}),
            "rank 0, action 0 (F0.2): there are stages 0 to 1");
  EXPECT_EQ(with(sound(), 0, 0, {Kind::kForward, 0, 2}),
            "rank 0, action 0 (F2.0): there are micro-batches 0 to 1");
  EXPECT_EQ(with(sound(), 1, 0, {Kind::kSendActivation, 1, 0}),
            "rank 1, action 0 (SA0.1): the last stage has no next one");
  EXPECT_EQ(with(sound(), 0, 0, {Kind::kSendGradient, 0, 0}),
            "rank 0, action 0 (SG0.0): the first stage has none before it");
  EXPECT_EQ(with(sound(), 0, 0, {Kind::kSendActivation, 0, 0}),
            "rank 0, action 0 (SA0.0): the stage has not computed it yet");
  EXPECT_EQ(with(sound("1f1b", 2, 1), 1, 0, {Kind::kForward, 1, 0}),
            "rank 1, action 0 (F0.1): the stage has not received its input");
  EXPECT_EQ(with(sound(), 1, 1, {Kind::kBackward, 1, 0}),
            "rank 1, action 1 (B0.1): its forward pass has not run");
  EXPECT_EQ(with(sound("1f1b", 2, 1), 0, 2, {Kind::kBackward, 0, 0}),
            "rank 0, action 2 (B0.0): the stage has not received its gradient");
  EXPECT_EQ(with(sound(), 1, 3, {Kind::kReduceGradients, 1, 0}),
            "rank 1, action 3 (R.1): the stage has run 1 of 2 backward passes");
  EXPECT_EQ(with(sound(), 1, 2, {Kind::kBackwardWeights, 1, 0}),
            "rank 1, action 2 (W0.1): the input's gradient comes first");
  EXPECT_EQ(with(sound(), 1, 2, {Kind::kBackwardInput, 1, 0}),
            "rank 1, action 6 (B1.1): an earlier one's weights come first");
  EXPECT_EQ(with(sound("naive", 1, 1), 0, 0, {Kind::kSendActivation, 0, 0}),
            "rank 0, action 0 (SA0.0): a single rank sends nothing");
}

// With two ranks and two stages each, activations of stages 0 and 2 go over one link.
TEST(Verify, BothEndsOfALinkMustAgreeOnTheOrder) {
  Schedule schedule = sound("interleaved", 2, 2, 2);
  std::vector<Action>& second = schedule.actions[1];
  const auto find = [&](int stage, int batch) {
    return std::find(second.begin(), second.end(),
                     Action{Action::Kind::kRecvActivation, stage, batch});
  };
  std::iter_swap(find(1, 1), find(3, 0));
  const std::string text = fault(schedule);
  EXPECT_NE(text.find("both must name the messages between them in the same order"),
            std::string::npos)
      << text;
}

TEST(Verify, ShapesThatMakeNoSense) {
  EXPECT_EQ(fault({"none", 2, 1, 1, {{}}}), "actions of 1 ranks, not of 2");
  EXPECT_EQ(fault({"none", 0, 1, 1, {}}),
            "a schedule of 0 ranks, 1 micro-batches and 1 stages a rank");
  EXPECT_EQ(fault({"none", 1, 1, 1, {{}}}), "stage 0 runs 0 of 1 micro-batches forward");
}

// Every action is needed, once: without any of them, or with any twice, there is a fault.
TEST(Verify, EveryActionCounts) {
  for (const auto& [name, v] : {std::pair{"naive", 1}, std::pair{"gpipe", 1}, std::pair{"1f1b", 1},
                                std::pair{"interleaved", 2}, std::pair{"zb-h1", 1}}) {
    const Schedule schedule = sound(name, 3, 6, v);
    ASSERT_EQ(fault(schedule), "none");
    for (int rank = 0; rank < 3; ++rank) {
      for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
        const Action action = schedule.actions[rank][i];
        Schedule without = schedule, twice = schedule;
        const auto at = static_cast<std::ptrdiff_t>(i);
        without.actions[rank].erase(without.actions[rank].begin() + at);
        EXPECT_NE(fault(without), "none")
            << name << " rank " << rank << " without " << to_string(action, true) << " at " << i;
        twice.actions[rank].insert(twice.actions[rank].begin() + at, action);
        EXPECT_NE(fault(twice), "none")
            << name << " rank " << rank << " twice " << to_string(action, true) << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tr::par
