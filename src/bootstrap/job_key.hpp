// The key that the ranks of a launcher's job share, and where it comes from.
#pragma once

#include "bootstrap/bootstrap.hpp"
#include "core/config.hpp"
#include "core/secret.hpp"
#include "core/status.hpp"

namespace treering {

struct JobKey {
  Secret key{};
  bool is_secret = false;  // false: follows from the job's name, which anybody may know
};

// TR_JOB_KEY (treering run makes one), else TR_SECRET or the content of TR_SECRET_FILE together
// with the job's name, else the job's name and the user alone. kInvalidArgument: both secrets are
// set; a file that cannot be read, that others may read, or that is too short. kInvalidUsage: no
// secret, but TR_REQUIRE_AUTH=1. Any thread.
Result<JobKey> job_key(const LaunchEnv& env, const Config& config);

}  // namespace treering
