// Measuring every algorithm of this library on host memory of this machine, ranks as threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "algos/registry.hpp"
#include "core/status.hpp"
#include "tuner/tuning.hpp"

namespace treering::tune {

struct Plan {
  std::vector<Collective> collectives;
  std::vector<int> sizes;            // numbers of ranks
  std::vector<std::uint64_t> bytes;  // as a choice counts them (tuner/choice.hpp)
  double seconds = 45;               // for everything
};

// The collectives that have several algorithms without windows, 2 and 4 ranks and as many as there
// are cores, 8 bytes to 16 MiB. `sizes` replaces the numbers of ranks, if it is not empty.
Plan default_plan(const std::vector<int>& sizes);

// One cell: all algorithms for one collective, size and length, tried in turn, several times; of
// each the best time a call counts, of the slowest rank.
struct Cell {
  Collective collective = Collective::kAllReduce;
  int size = 0;
  std::uint64_t bytes = 0;
  struct Time {
    const algos::Algorithm* algorithm = nullptr;
    double us = 0;
  };
  std::vector<Time> times;
};

// `progress` hears of each collective and number of ranks before it starts.
Result<std::vector<Cell>> measure(const Plan& plan,
                                  const std::function<void(const std::string&)>& progress);

Tuning tuning_of(const std::vector<Cell>& cells);

// What this machine is, in words.
std::string machine_words();

}  // namespace treering::tune
