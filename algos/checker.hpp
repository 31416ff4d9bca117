// The checker: proves a program by running it, once.
//
//   structure  every step is one that can be carried out (Network::build)
//   meaning    every rank ends with exactly what the collective promises, each input used once;
//              Last::kYes stands exactly on the steps that complete a fold; the claims (order,
//              uneven chunks) are true; all ranks of an all-reduce hold the same expression, hence
//              the same bits
//   races      no unordered access to a buffer chunk, in place included; peers use a rank's
//              buffers only between its call and its return; nobody leaves a barrier before all
//              came
//   progress   no deadlock, no message left over, for k slices a chunk and s slots a link; see
//              algos/network.hpp for why one run is a proof
//
// Errors are Code::kInvalidArgument and say which step is wrong and why. Bytes and messages per
// link are counted, not judged: compare traffic() with the formula that the algorithm promises.
#pragma once

#include <vector>

#include "algos/network.hpp"
#include "algos/program.hpp"
#include "core/link_id.hpp"
#include "core/status.hpp"

namespace treering::algos {

// Structure and everything that depends neither on slices nor on slots.
Status check_meaning(const Network& network);

// All of it. The program is proven for any number of rounds; `rounds` of them are run.
Status check(const Program& program, int slices, int slots, int rounds = 3);

// The fewest slots a link with which the program does not deadlock. Fails if no number helps.
Result<int> minimum_slots(const Network& network, int slices);
Result<int> minimum_slots(const Algorithm& algorithm, int size, int slices, int root = 0);

// What one round of one slice sends on a link.
struct Traffic {
  LinkId link;
  int messages = 0;
  std::vector<int> chunks;  // carried, in order; a publish carries none
};
Result<std::vector<Traffic>> traffic(const Program& program);

}  // namespace treering::algos
