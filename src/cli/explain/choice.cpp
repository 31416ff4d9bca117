#include "cli/explain/choice.hpp"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include "tuner/choice.hpp"
#include "tuner/tuning.hpp"

namespace treering::explain {
namespace {

bool parts_are_counted(Collective c) {
  return c == Collective::kAllGather || c == Collective::kReduceScatter ||
         c == Collective::kGather || c == Collective::kScatter || c == Collective::kAllToAll;
}

std::string why_it_loses(const Candidate& c, const Candidate& winner) {
  if (c.objection != nullptr) return c.objection;
  if (c.predicted_us && winner.predicted_us) {
    char text[64];
    std::snprintf(text, sizeof text, "%.2f times the winner's time",
                  *c.predicted_us / *winner.predicted_us);
    return text;
  }
  return "the rules prefer the winner";
}

}  // namespace

Result<std::string> explain_choice(Collective collective, int ranks, std::uint64_t bytes,
                                   const std::string& tuning_file) {
  std::unique_ptr<Tuning> tuning;
  if (!tuning_file.empty()) {
    std::ifstream file(tuning_file, std::ios::binary);
    if (!file) return system_error("cannot open the tuning '" + tuning_file + "'", errno);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    TR_ASSIGN_OR_RETURN(Tuning parsed, Tuning::parse(text, tuning_file));
    tuning = std::make_unique<Tuning>(std::move(parsed));
  }
  ChoiceInput in;
  in.collective = collective;
  in.size = ranks;
  in.bytes = parts_are_counted(collective) ? bytes / static_cast<unsigned>(ranks) : bytes;
  in.link_bytes = 128 << 10;
  in.cast_bytes = 256 << 10;
  in.tuning = tuning.get();
  TR_ASSIGN_OR_RETURN(const Choice choice, choose(in));
  Candidate winner;
  std::string rows;
  const std::vector<Candidate> all = candidates(in);
  for (const Candidate& c : all) {
    if (c.algorithm == choice.algorithm) winner = c;
  }
  char line[256];
  for (const Candidate& c : all) {
    char us[32] = "-";
    if (c.predicted_us) std::snprintf(us, sizeof us, "%.1f", *c.predicted_us);
    const bool wins = c.algorithm == choice.algorithm;
    std::snprintf(line, sizeof line, "%c %-20s %12s  %s\n", wins ? '>' : ' ', c.algorithm->name, us,
                  wins ? choice.why : why_it_loses(c, winner).c_str());
    rows += line;
  }
  std::snprintf(
      line, sizeof line,
      "%s of %llu bytes over %d ranks: host memory of one machine, buffers not registered\n",
      collective_name(collective), static_cast<unsigned long long>(bytes), ranks);
  std::string text = line;
  text += tuning != nullptr
              ? "predicted by " + tuning_file + ": " + tuning->machine + "\n"
              : "nothing is predicted: no tuning (treering tune makes one, TR_TUNE_FILE or --tune "
                "names it)\n";
  std::snprintf(line, sizeof line, "  %-20s %12s  %s\n", "algorithm", "us", "why");
  text += line + rows;
  std::snprintf(line, sizeof line, "slices of %zu bytes, %s stores into slots\n",
                choice.slice_bytes, choice.stream_slots ? "streaming" : "ordinary");
  if (!choice.algorithm->windows) text += line;
  return text + "transport of every pair: shared memory\n";
}

}  // namespace treering::explain
