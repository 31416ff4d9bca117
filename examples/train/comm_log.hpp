// --comm-log: what a rank's communication was, by group, operation and size.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "treering/parallel/trace.hpp"

namespace train {

class CallTable {
 public:
  // Its operations, each from its issue until its wait returned.
  void add(const tr::par::Trace& trace);
  // A line for each group, operation and size. algbw is the size over the time, busbw what the rank
  // sent over the time: what a link carried if nothing else was under way.
  std::string to_string() const;

 private:
  using Key = std::tuple<tr::par::Row, std::string, std::int64_t>;  // and bytes of the vector
  struct Calls {
    std::int64_t count = 0, sent_bytes = 0;
    double total_us = 0.0, longest_us = 0.0;
  };
  std::map<Key, Calls> calls_;
};

}  // namespace train
