// Schedules: the ones in the papers, what holds for all of them, what is drawn and written.
#include "treering/parallel/schedule.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace tr::par {
namespace {

constexpr StageTimes kTwice{1.0, 1.0, 1.0, 0.0};  // a backward pass takes twice a forward pass

Schedule made(std::string_view name, int p, int m, int v = 1) {
  Result<Schedule> schedule = make_schedule(name, p, m, v);
  if (!schedule) {
    ADD_FAILURE() << schedule.error().message;
    return {};
  }
  return std::move(schedule).value();
}
Timeline simulated(const Schedule& schedule, const StageTimes& times = kTwice) {
  Result<Timeline> timeline = simulate(schedule, times);
  if (!timeline) {
    ADD_FAILURE() << timeline.error().message;
    return {};
  }
  return std::move(timeline).value();
}
std::vector<int> peaks(const Schedule& schedule) {
  const Result<ScheduleFacts> facts = verify(schedule);
  if (!facts) {
    ADD_FAILURE() << facts.error().message << "\n" << to_string(schedule, true);
    return {};
  }
  return facts.value().peak_in_flight;
}

TEST(Schedule, AreThoseOfThePapers) {
  EXPECT_EQ(to_string(made("naive", 2, 2)), "rank 0: F0 B0 F1 B1\nrank 1: F0 B0 F1 B1\n");
  EXPECT_EQ(to_string(made("gpipe", 2, 4)),
            "rank 0: F0 F1 F2 F3 B0 B1 B2 B3\nrank 1: F0 F1 F2 F3 B0 B1 B2 B3\n");
  EXPECT_EQ(to_string(made("1f1b", 2, 4)),
            "rank 0: F0 F1 B0 F2 B1 F3 B2 B3\nrank 1: F0 B0 F1 B1 F2 B2 F3 B3\n");
  EXPECT_EQ(to_string(made("interleaved", 2, 2, 2)),
            "rank 0: F0.0 F1.0 F0.2 F1.2 B0.2 B1.2 B0.0 B1.0\n"
            "rank 1: F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 B0.1 B1.1\n");
  EXPECT_EQ(to_string(made("1f1b", 2, 2), true),
            "rank 0: F0 SA0 F1 SA1 RG0 B0 RG1 B1 R\nrank 1: RA0 F0 B0 SG0 RA1 F1 B1 R SG1\n");
}

// Figure 3 (top) of Qi et al., four stages and eight micro-batches.
TEST(Schedule, ZeroBubbleFillsTheEndWithWeights) {
  EXPECT_EQ(
      draw(simulated(made("zb-h1", 4, 8))),
      "rank 0 F0 F1 F2 F3 .........I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7 \n"
      "rank 1 ...F0 F1 F2 ......I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7 \n"
      "rank 2 ......F0 F1 ...I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7 \n"
      "rank 3 .........F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7 \n");
}

TEST(Schedule, MakespansAreKnown) {
  const struct {
    int p, m;
    double makespan;
  } kKnown[] = {{2, 4, 15}, {4, 4, 21}, {4, 8, 33}, {8, 32, 117}, {4, 1, 12}, {3, 2, 12}};
  for (const auto& known : kKnown) {
    for (const char* name : {"gpipe", "1f1b"}) {
      EXPECT_DOUBLE_EQ(simulated(made(name, known.p, known.m)).makespan, known.makespan)
          << name << " " << known.p << " " << known.m;
    }
  }
}

TEST(Schedule, BubblesAreKnown) {
  const struct {
    int p, m;
    double percent;
  } kKnown[] = {{2, 4, 20.0}, {4, 4, 42.9}, {4, 8, 27.3}, {8, 32, 17.9}};
  for (const auto& known : kKnown) {
    EXPECT_NEAR(100 * bubble_formula("1f1b", known.p, known.m), known.percent, 0.05);
    EXPECT_NEAR(100 * simulated(made("1f1b", known.p, known.m)).bubble(), known.percent, 0.05);
  }
  EXPECT_DOUBLE_EQ(simulated(made("naive", 4, 5)).bubble(), 0.75);
  EXPECT_DOUBLE_EQ(simulated(made("interleaved", 4, 8, 2)).bubble(), 3.0 / 19.0);
}

TEST(Schedule, ActivationsInFlightAreKnown) {
  EXPECT_EQ(peaks(made("naive", 4, 4)), (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(peaks(made("gpipe", 4, 4)), (std::vector<int>{4, 4, 4, 4}));
  EXPECT_EQ(peaks(made("gpipe", 2, 9)), (std::vector<int>{9, 9}));
  EXPECT_EQ(peaks(made("1f1b", 4, 4)), (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(peaks(made("1f1b", 4, 64)), (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(peaks(made("1f1b", 4, 2)), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(peaks(made("zb-h1", 4, 8)), (std::vector<int>{4, 4, 4, 4}));
}

// The idle time of a rank, with F, I and W of one unit each: (p-1) * 3 and (p-1).
TEST(Schedule, ZeroBubbleIsAThirdOf1f1bs) {
  for (int p = 2; p <= 9; ++p) {
    for (int m = p; m <= 3 * p; ++m) {
      const Timeline plain = simulated(made("1f1b", p, m)), zero = simulated(made("zb-h1", p, m));
      for (int r = 0; r < p; ++r) {
        EXPECT_DOUBLE_EQ(plain.makespan - plain.busy[r], 3.0 * (p - 1));
        EXPECT_DOUBLE_EQ(zero.makespan - zero.busy[r], p - 1.0);
      }
    }
  }
}

// A message that takes time is paid for once a stage on the way there and back.
TEST(Schedule, SendsTakeTime) {
  EXPECT_DOUBLE_EQ(simulated(made("naive", 3, 1), {1, 1, 1, 0.25}).makespan, 9 + 4 * 0.25);
  EXPECT_DOUBLE_EQ(simulated(made("1f1b", 4, 1), {2, 1, 3, 0.5}).makespan, 4 * 6 + 6 * 0.5);
}

TEST(Schedule, AllAreProvenAndHaveTheFormulasBubble) {
  const unsigned seed = 20240611;
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < 100; ++round) {
    const int p = pick(1, 12), v = pick(1, 4), m = pick(1, 40);
    for (const char* name : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1"}) {
      const bool is_interleaved = std::string_view(name) == "interleaved";
      const int stages = is_interleaved ? v : 1, batches = is_interleaved ? (m + p - 1) / p * p : m;
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + name + " p " + std::to_string(p) +
                   " m " + std::to_string(batches) + " v " + std::to_string(stages));
      const Schedule schedule = made(name, p, batches, stages);
      const std::vector<int> in_flight = peaks(schedule);
      ASSERT_EQ(in_flight.size(), static_cast<std::size_t>(p));
      const Timeline timeline = simulated(schedule);
      for (const double busy : timeline.busy) EXPECT_DOUBLE_EQ(busy, 3.0 * batches * stages);
      if (std::string_view(name) != "zb-h1" || m >= p) {
        EXPECT_NEAR(timeline.bubble(), bubble_formula(name, p, batches, stages), 1e-9);
      }
      if (std::string_view(name) == "1f1b") {
        for (int r = 0; r < p; ++r) EXPECT_EQ(in_flight[r], std::min(p - r, m));
      }
      if (std::string_view(name) == "zb-h1") {
        for (const int kept : in_flight) EXPECT_EQ(kept, std::min(p, m));
      }
      const Result<Schedule> again = schedule_from_csv(to_csv(schedule));
      ASSERT_TRUE(again) << again.error().message;
      EXPECT_EQ(again.value().actions, schedule.actions);
    }
  }
}

TEST(Schedule, OneRankSendsNothing) {
  const Schedule schedule = made("interleaved", 1, 3, 4);
  for (const Action& action : schedule.actions[0]) {
    EXPECT_FALSE(is_communication(action.kind)) << to_string(action, true);
  }
}

TEST(Schedule, RefusesWhatThereIsNot) {
  const auto why = [](std::string_view name, int p, int m, int v) {
    const Result<Schedule> schedule = make_schedule(name, p, m, v);
    return schedule ? std::string("made") : schedule.error().message;
  };
  EXPECT_EQ(why("2f2b", 2, 4, 1),
            "there is no schedule \"2f2b\"; there are naive, gpipe, 1f1b, interleaved and zb-h1");
  EXPECT_EQ(why("interleaved", 4, 6, 2),
            "interleaved needs a multiple of 4 micro-batches (4 or 8), not 6");
  EXPECT_EQ(why("interleaved", 4, 3, 2),
            "interleaved needs a multiple of 4 micro-batches (4), not 3");
  EXPECT_EQ(why("1f1b", 4, 8, 2),
            "schedule 1f1b has one stage a rank, not 2; interleaved has several");
  for (const auto& [p, m, v] : {std::array{0, 1, 1}, std::array{1, 0, 1}, std::array{1, 1, -1},
                                std::array{1 << 30, 1, 1 << 30}}) {
    EXPECT_NE(why("interleaved", p, m, v).find("no schedule has"), std::string::npos);
  }
}

TEST(ScheduleCsv, ComputationAloneIsEnough) {
  const Result<Schedule> schedule = schedule_from_csv(
      "rank,action,stage,micro_batch\n# two ranks, GPipe\n\n0,F,0,0\n0, F, 0, "
      "1\r\n0,B,0,0\n0,B,0,1\n"
      "1,F,1,0\n1,F,1,1\n1,B,1,0\n1,B,1,1");
  ASSERT_TRUE(schedule) << schedule.error().message;
  EXPECT_EQ(schedule.value().actions, made("gpipe", 2, 2).actions);
}

TEST(ScheduleCsv, ErrorsNameTheLine) {
  const auto why = [](std::string_view text) {
    const Result<Schedule> schedule = schedule_from_csv(text);
    return schedule ? std::string("made") : schedule.error().message;
  };
  EXPECT_EQ(why(""), "the schedule is empty");
  EXPECT_EQ(why("0,F,0,0\n0,F,0\n"),
            "line 2: it has not four fields, rank,action,stage,micro_batch");
  EXPECT_EQ(why("0,X,0,0"), "line 1: action \"X\" is none of F, B, I, W, SA, RA, SG, RG, R");
  EXPECT_EQ(why("-1,F,0,0"), "line 1: rank \"-1\" is not a number from 0 to 4095");
  EXPECT_EQ(why("0,F,1x,0"), "line 1: stage \"1x\" is not a number from 0 to 65535");
  EXPECT_EQ(why("0,F,0,99999999999999999999"),
            "line 1: micro-batch \"99999999999999999999\" is not a number from 0 to 1048575");
  EXPECT_EQ(why("0,F,0,0\n1,F,2,0"),
            "the schedule has 3 stages, which is no multiple of its 2 ranks");
}

// Whatever a file holds, it is refused with words or accepted; nothing else happens.
TEST(ScheduleCsv, FuzzedTextIsRefusedOrSound) {
  const unsigned seed = 977;
  std::mt19937 random(seed);
  const std::string sound = to_csv(made("interleaved", 2, 4, 2));
  const std::string_view letters = "0123456789,FBIWSAGR-x\n\r #\0\xff";
  int refused = 0, accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text = sound;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      const char letter = letters[random() % letters.size()];
      switch (random() % 3) {
        case 0:
          text[at] = letter;
          break;
        case 1:
          text.insert(at, 1, letter);
          break;
        default:
          text.erase(at, 1 + random() % 20);
      }
    }
    const Result<Schedule> parsed = schedule_from_csv(text);
    const Result<ScheduleFacts> facts = parsed ? verify(parsed.value()) : parsed.error();
    ++(facts ? accepted : refused);
    const bool is_told =
        facts ? simulate(parsed.value(), kTwice).ok() : !facts.error().message.empty();
    EXPECT_TRUE(is_told) << "seed " << seed << "\n" << text;
  }
  EXPECT_GT(refused, 1500) << "seed " << seed;  // some edits are in comments and blanks
  EXPECT_GT(accepted, 0) << "seed " << seed;
}

}  // namespace
}  // namespace tr::par
