// A step in words: as a cell of the table and as a sentence.
#pragma once

#include <string>

#include "algos/program.hpp"
#include "algos/schedule.hpp"

namespace treering::explain {

// In both, `schedule` is one rank's of `program` and `step` one of its steps.

// "3 -> c0 += -> 1", in three parts that a column lines up.
struct Cell {
  std::string from;  // "3 ->", "1,2 ->", "each ->"; empty if nothing comes in
  std::string what;  // "c0 +=": chunk 0, + the own part is added, = the result is kept
  std::string to;    // "-> 1", "-> all"; empty if nothing goes out
};

Cell cell(const algos::Program& program, const algos::Schedule& schedule, const algos::Step& step);

// "receives chunk 0 from rank 3, adds its own, keeps the sum (complete), sends it to rank 1"
std::string sentence(const algos::Program& program, const algos::Schedule& schedule,
                     const algos::Step& step);

}  // namespace treering::explain
