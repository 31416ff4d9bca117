// The page of `treering explain --html`, made from page/ at build time by embed.py.
#pragma once

namespace treering::explain {

// "@schedule" stands where the schedule belongs.
extern const char* const kPage;

}  // namespace treering::explain
