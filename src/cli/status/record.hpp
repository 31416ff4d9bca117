// The bytes of a flight record, in memory or from a file.
#pragma once

#include <cstddef>
#include <optional>

#include "cli/status/job.hpp"

namespace treering::status {

// bytes: from the header on. Nothing if it is none, or of another build.
std::optional<FlightLog> flight_log(const std::byte* base, std::size_t bytes);

}  // namespace treering::status
