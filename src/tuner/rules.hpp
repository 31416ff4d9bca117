// Rules: which algorithm serves a call on host or device memory, and why. What is common to both
// choices (choice.hpp, device_choice.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/status.hpp"
#include "tuner/choice.hpp"

namespace treering {

// Where the buffers of a call lie.
enum class Place : unsigned { kHost = 1, kDevice = 2 };

struct Pick {
  const algos::Algorithm* algorithm = nullptr;
  const char* why = "";  // static text
};

// `exists`: has the place a program for this algorithm? (The host has one for every algorithm.)
Result<Pick> pick_algorithm(const ChoiceInput& in, Place place,
                            const std::function<bool(const char* name)>& exists);

// Why `algorithm` may not serve this call; nullptr if it may.
const char* objection(const algos::Algorithm& algorithm, const ChoiceInput& in);

// The largest chunk that the call's vector is cut into.
std::uint64_t chunk_bytes(const algos::Algorithm& algorithm, const ChoiceInput& in);

// A line for each range of sizes in which `describe` says the same, with the reason that it gives.
struct Description {
  std::string choice;
  std::string why;
};
std::string explain_sizes(const std::function<Result<Description>(std::uint64_t bytes)>& describe);

}  // namespace treering
