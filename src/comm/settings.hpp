// What all ranks agree on when a communicator forms.
#pragma once

#include <cstdint>
#include <optional>

#include "bootstrap/rendezvous.hpp"
#include "core/config.hpp"
#include "core/status.hpp"
#include "tuner/tuning.hpp"

namespace treering {

struct Settings {
  std::uint64_t communicator = 0;  // a random number, the same on all its ranks
  std::optional<Tuning> tuning;    // the one that rank 0 was told to read (TR_TUNE_FILE)
};

// Collective. All ranks must have the same settings, or all get an error that shows the first that
// differ. All ranks choose by rank 0's tuning; where it cannot be read, all get the error.
Result<Settings> agree_on_settings(Rendezvous& rendezvous, const Config& config);

}  // namespace treering
