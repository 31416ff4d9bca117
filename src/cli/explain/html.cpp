// The page: the embedded HTML with the schedule in it.
#include "cli/explain/page.hpp"
#include "cli/explain/report.hpp"

namespace treering::explain {

Result<std::string> to_html(const Report& report) {
  if (report.ranks > kMaxPageRanks) {
    return unsupported("--html draws at most " + std::to_string(kMaxPageRanks) +
                       " ranks legibly; for " + std::to_string(report.ranks) +
                       " use the text, with --rank R");
  }
  // In a script element '<' could end it.
  std::string json;
  for (char c : to_json(report)) {
    if (c == '<')
      json += "\\u003c";
    else
      json += c;
  }
  static constexpr std::string_view kPlace = "@schedule";
  std::string page = kPage;
  page.replace(page.find(kPlace), kPlace.size(), json);
  return page;
}

}  // namespace treering::explain
