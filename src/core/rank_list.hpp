// "rank 3", "ranks 2, 5-7": a set of ranks in few words, for error texts and hang reports.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace treering {

// `ranks` ascending, without repeats. Names at most a dozen ranges; then says how many ranks are
// left.
inline std::string rank_list(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank";
  constexpr int kMaxRanges = 12;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  int ranges = 0;
  for (std::size_t begin = 0; begin < ranks.size();) {
    if (ranges == kMaxRanges)
      return text + " and " + std::to_string(ranks.size() - begin) + " more";
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - begin == 2) --end;  // "5, 6" reads better than "5-6"
    if (ranges++ > 0) text += ", ";
    text += std::to_string(ranks[begin]);
    if (end - begin > 1) text += "-" + std::to_string(ranks[end - 1]);
    begin = end;
  }
  return text;
}

}  // namespace treering
