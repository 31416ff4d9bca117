// Choice: which algorithm and which slices serve a call, and why.
//
// Every input of the decision is the same on all ranks (the communicator agrees on its settings
// when it forms), so all ranks choose alike. v-variants never choose by counts, which ranks do not
// share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "algos/registry.hpp"
#include "core/host_map.hpp"
#include "core/status.hpp"
#include "core/types.hpp"

namespace treering {

class Tuning;

struct ChoiceInput {
  Collective collective = Collective::kAllReduce;
  int size = 1;
  const HostMap* hosts = nullptr;  // which ranks share a host; nullptr: all
  // all_reduce, reduce, broadcast, scan: the vector; otherwise: one rank's part. 0 for v-variants.
  std::uint64_t bytes = 0;
  bool uneven = false;      // a v-variant
  bool commutative = true;  // the operator, or no operator
  bool ordered = false;     // TR_OPT_ORDERED and a reduction
  bool in_place = false;
  bool windows = false;          // all buffers lie in registered windows
  bool per_rank_factor = false;  // pre-multiplied sum: inputs must be scaled by their owner
  // Slot data that a link has.
  std::size_t link_bytes = 0;
  std::size_t cast_bytes = 0;
  std::size_t forced_slice_bytes = 0;  // TR_SLICE_BYTES; 0 = choose
  const char* forced = nullptr;        // a name: this algorithm or an error; nullptr = choose
  const Tuning* tuning = nullptr;      // what was measured; nullptr: the rules alone
};

struct Choice {
  const algos::Algorithm* algorithm = nullptr;
  std::size_t slice_bytes = 0;  // a multiple of 64; also the slots' size
  std::uint32_t slices_per_round = 1;
  bool stream_slots = false;
  bool stream_out = false;
  const char* why = "";  // static text
};

Result<Choice> choose(const ChoiceInput& input);

// An algorithm that could have served a call.
struct Candidate {
  const algos::Algorithm* algorithm = nullptr;
  const char* objection = nullptr;     // why it cannot; nullptr: it can
  std::optional<double> predicted_us;  // by the tuning
};
// All of the collective's, in the registry's order.
std::vector<Candidate> candidates(const ChoiceInput& input);

// For tr_comm_explain: a line per size range of the collective, with the reason.
std::string explain_choices(ChoiceInput input);

}  // namespace treering
