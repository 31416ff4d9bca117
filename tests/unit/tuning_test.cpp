// Tuning: its text, what it predicts, and what is chosen by it.
#include "tuner/tuning.hpp"

#include <gtest/gtest.h>

#include "tuner/choice.hpp"

namespace treering {
namespace {

constexpr char kText[] =
    "treering tuning 1\n# a machine\nall_reduce ring 4 8:20 1024:22 4096:100\n"
    "all_reduce one_shot 4 8:2 1024:40 4096:50\nall_reduce two_shot 4 8:5 1024:41 4096:90\n"
    "all_reduce tree 8 8:1 1024:1\n";

const algos::Algorithm& algorithm(const char* name) {
  return *algos::find_algorithm(Collective::kAllReduce, name);
}

Tuning tuning() {
  Result<Tuning> t = Tuning::parse(kText, "here");
  EXPECT_TRUE(t.ok()) << t.status().message();
  return t.ok() ? std::move(t).value() : Tuning();
}

TEST(Tuning, IsWhatItsTextSays) {
  const Tuning t = tuning();
  EXPECT_EQ(t.machine, "a machine");
  EXPECT_EQ(t.text(), kText);
}

TEST(Tuning, PredictsOnStraightLines) {
  const Tuning t = tuning();
  const algos::Algorithm& ring = algorithm("ring");
  EXPECT_EQ(t.predict_us(ring, 4, 0), 20);
  EXPECT_EQ(t.predict_us(ring, 4, 8), 20);
  EXPECT_EQ(t.predict_us(ring, 4, 516), 21);
  EXPECT_EQ(t.predict_us(ring, 4, 1024), 22);
  EXPECT_EQ(t.predict_us(ring, 4, 2560), 61);
  EXPECT_EQ(t.predict_us(ring, 4, 4096 + 3072), 178);
  EXPECT_FALSE(t.predict_us(ring, 2, 8).has_value());
  EXPECT_FALSE(t.predict_us(algorithm("halving_doubling"), 4, 8).has_value());
}

const char* chosen(const Tuning* t, std::uint64_t bytes, int size = 4, const char* forced = nullptr,
                   bool ordered = false) {
  ChoiceInput in;
  in.size = size;
  in.bytes = bytes;
  in.link_bytes = in.cast_bytes = 128 << 10;
  in.tuning = t;
  in.forced = forced;
  in.ordered = ordered;
  const Result<Choice> c = choose(in);
  EXPECT_TRUE(c.ok()) << c.status().message();
  return c.ok() ? c.value().algorithm->name : "";
}

TEST(Tuning, TheFastestIsChosenWhereItIsClearlyFaster) {
  const Tuning t = tuning();
  EXPECT_STREQ(chosen(&t, 8), "one_shot");
  EXPECT_STREQ(chosen(nullptr, 1024), "one_shot");
  EXPECT_STREQ(chosen(&t, 1024), "ring");
  EXPECT_STREQ(chosen(&t, 4096), "one_shot");
  EXPECT_STREQ(chosen(&t, 1024, 4, "tree"), "tree");             // a forced one wins
  EXPECT_STREQ(chosen(&t, 1024, 4, nullptr, true), "one_shot");  // what cannot serve does not
  EXPECT_STREQ(chosen(&t, 1024, 8), "one_shot");  // the rules' pick was not measured there
}

TEST(Tuning, CandidatesAreAllOfTheCollective) {
  const Tuning t = tuning();
  ChoiceInput in;
  in.size = 4;
  in.bytes = 1024;
  in.tuning = &t;
  int predicted = 0, objections = 0;
  for (const Candidate& c : candidates(in)) {
    predicted += c.predicted_us.has_value();
    objections += c.objection != nullptr;
    EXPECT_TRUE(!c.algorithm->windows || c.objection != nullptr) << c.algorithm->name;
  }
  EXPECT_EQ(predicted, 3);
  EXPECT_GE(objections, 3);  // local, and two of windows
}

TEST(Tuning, BadTextIsRefusedWithItsLine) {
  const auto refused = [](const std::string& text, const char* words) {
    const Result<Tuning> t = Tuning::parse(text, "f");
    ASSERT_FALSE(t.ok()) << text;
    EXPECT_NE(t.status().message().find(words), std::string::npos) << t.status().message();
  };
  const std::string head = "treering tuning 1\n";
  refused("", "no curve");
  refused("tuning\n", "f line 1: must be 'treering tuning 1'");
  refused(head + "all_reduce heap 4 8:1 16:2\n", "f line 2: there is no algorithm 'heap'");
  refused(head + "all_to_none ring 4 8:1 16:2\n", "there is no algorithm 'ring' of 'all_to_none'");
  refused(head + "all_reduce ring four 8:1 16:2\n", "number of ranks");
  refused(head + "all_reduce ring 0 8:1 16:2\n", "number of ranks");
  refused(head + "all_reduce ring 4 8:1\n", "two sizes");
  refused(head + "all_reduce ring 4 8:1 8:2\n", "ascend");
  refused(head + "all_reduce ring 4 8:1 16:-2\n", "BYTES:MICROSECONDS");
  refused(head + "all_reduce ring 4 8:1 16:nan\n", "BYTES:MICROSECONDS");
  refused(head + "all_reduce ring 4 8:1 16\n", "BYTES:MICROSECONDS");
  const std::string line = "all_reduce ring 4 8:1 16:2\n";
  refused(head + line + line, "line 3: the same");
}

}  // namespace
}  // namespace treering
