// The settings of the library and the one table of environment variables that they come from.
//
// The table serves everything: parsing, the error for a bad value, and `treering env`. To add a
// variable, add a member to Config (its initializer is the default) and a row to the table in
// config.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/log.hpp"
#include "core/status.hpp"
#include "core/types.hpp"

namespace treering {

inline constexpr int kMaxRanks = 16'384;  // of a job or communicator

inline constexpr std::size_t kMinSecretChars = 16;  // of TR_SECRET

// TR_ALGO=all_reduce:ring. Whether the algorithm exists is for the communicator to say, which knows
// the registry and the size.
struct AlgoChoice {
  Collective collective;
  std::string algorithm;
  bool operator==(const AlgoChoice&) const = default;
};

// TR_PORT_RANGE=5000-5019; 0: any port.
struct PortRange {
  int first = 0;
  int last = 0;
  bool operator==(const PortRange&) const = default;
};

struct Config {
  // Waits.
  std::int64_t timeout_ms = 300'000;       // a formed communicator in which nothing moves; 0: never
  std::int64_t init_timeout_ms = 120'000;  // until all ranks of a communicator have come
  std::int64_t warn_ms = 10'000;           // a wait longer than this is reported once; 0: never
  std::int64_t spin = -1;                  // polls before a wait yields its core; -1: chosen
  std::int64_t flight_recorder = 0;        // calls that are kept for reports
  std::string flight_dir;  // where they go on an error; empty: the working directory

  // Links and algorithms. 0: chosen by the library.
  std::int64_t link_bytes = 0;   // slot data of a link between two ranks
  std::int64_t cast_bytes = 0;   // slot data of a one-to-many link
  std::int64_t slice_bytes = 0;  // a slice: what one slot carries
  bool ordered = false;          // reductions fold in rank order
  std::vector<AlgoChoice> algos;

  // GPUs.
  bool cuda = true;                  // use them, where there are any
  bool cuda_strict = false;          // ranks whose GPUs do not reach each other are an error
  std::int64_t cuda_channels = 0;    // blocks per lane; 0: as many as fit, 4 at most
  std::int64_t cuda_slot_bytes = 0;  // of protocol Simple; 0: chosen
  std::int64_t copy_engine = 0;      // moves in windows by copy engines: 1: long ones, 2: all
  std::string protocol;              // to force: Simple, LL, LL128; empty: chosen

  // For tests: which ranks the library takes to be on one host (HostMap::parse); empty: found out.
  std::string test_hosts;
  std::string host_id;    // empty: found out; ranks with different ones never share memory
  std::string tune_file;  // what treering tune stored; only rank 0 reads it
  bool explain = false;   // rank 0 writes to stderr what a new communicator will choose

  // TCP between hosts.
  std::string interfaces;    // to use: names or networks, separated by commas; empty: all
  PortRange ports;           // to listen on
  std::int64_t sockets = 0;  // data connections to each rank of another host; 0: chosen
  bool checksum = false;     // of every message

  // Who belongs to the job (bootstrap/job_key.hpp).
  std::string secret;         // shared by all ranks; empty: none
  std::string secret_file;    // holds it
  bool require_auth = false;  // a job without a key is an error
  LogLevel log_level = LogLevel::kWarn;

  // Set by a launcher. -1: not set.
  std::int64_t rank = -1;
  std::int64_t size = -1;
  std::int64_t local_rank = -1;
  std::int64_t local_size = -1;
  std::int64_t store_port = 0;  // 0: derived from the job (bootstrap/bootstrap.hpp)
  std::string store_address;    // of rank 0's host; empty: what the launcher says
  std::string job_key;          // 32 hexadecimal digits; empty: derived from the job

  bool operator==(const Config&) const = default;
};

// The defaults, overridden by the environment of this moment. An error names the variable, its
// value and what would be right. An empty value counts as not set.
Result<Config> load_config();

// A row of the table in words, for `treering env`.
struct EnvVarInfo {
  std::string name;
  std::string type;           // "seconds", "bytes", "0 or 1", ...
  std::string default_value;  // as it would be written; "" for none
  std::string range;          // "0.01 to 1000000"
  std::string meaning;        // one line
};
std::vector<EnvVarInfo> env_table();

// Variables of this process that start with TR_ and are not in the table: usually a slip of the
// pen.
std::vector<std::string> unknown_env_vars();

}  // namespace treering
