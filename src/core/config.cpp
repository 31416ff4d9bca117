#include "core/config.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <unistd.h>
#include <variant>

namespace treering {
namespace {

enum class Kind {
  kSeconds,
  kBytes,
  kCount,
  kFlag,
  kLogLevel,
  kAlgos,
  kKey,
  kText,
  kSecret,
  kPorts
};

using Member =
    std::variant<std::int64_t Config::*, bool Config::*, std::string Config::*, LogLevel Config::*,
                 std::vector<AlgoChoice> Config::*, PortRange Config::*>;

// min and max in the units of the member (milliseconds for kSeconds). special: a value outside the
// range that is legal too, and what it means; null if there is none.
struct EnvVar {
  const char* name;
  Kind kind;
  Member member;
  std::int64_t min;
  std::int64_t max;
  std::int64_t special;
  const char* special_meaning;
  const char* meaning;
};

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kGiB = kKiB * kKiB * kKiB;
constexpr std::int64_t kMaxWaitMs = 1'000'000'000;

const EnvVar kTable[] = {
    {"TR_TIMEOUT_S", Kind::kSeconds, &Config::timeout_ms, 10, kMaxWaitMs, 0, "never",
     "an operation in which nothing has moved for so long is an error"},
    {"TR_INIT_TIMEOUT_S", Kind::kSeconds, &Config::init_timeout_ms, 10, kMaxWaitMs, 0, nullptr,
     "deadline until all ranks of a new communicator have come"},
    {"TR_WARN_S", Kind::kSeconds, &Config::warn_ms, 10, kMaxWaitMs, 0, "never",
     "a wait longer than this is reported once: who waits for whom, and why"},
    {"TR_FLIGHT_RECORDER", Kind::kCount, &Config::flight_recorder, 1, 1 << 20, 0, "none",
     "last calls of each rank that are kept, for treering status and for a file on an error"},
    {"TR_FLIGHT_DIR", Kind::kText, &Config::flight_dir, 0, 0, 0, nullptr,
     "folder of that file; not set: the working directory"},
    {"TR_SPIN", Kind::kCount, &Config::spin, 0, 1'000'000'000, -1, "chosen by cores and ranks",
     "most polls of a wait before it yields its core, fewer where they do not pay; none where it "
     "waits for a rank on that core"},
    {"TR_LINK_BYTES", Kind::kBytes, &Config::link_bytes, 4 * kKiB, kGiB, 0, "chosen",
     "slot data of a link between two ranks"},
    {"TR_CAST_BYTES", Kind::kBytes, &Config::cast_bytes, 4 * kKiB, kGiB, 0, "chosen",
     "slot data of a one-to-many link"},
    {"TR_SLICE_BYTES", Kind::kBytes, &Config::slice_bytes, 64, kGiB, 0, "chosen",
     "largest slice, the part of a chunk that one slot carries"},
    {"TR_ALGO", Kind::kAlgos, &Config::algos, 0, 0, 0, nullptr,
     "algorithms to force, such as all_reduce:ring,broadcast:tree"},
    {"TR_ORDERED", Kind::kFlag, &Config::ordered, 0, 1, 0, nullptr,
     "1: reductions fold in rank order, so that their bits do not depend on the algorithm"},
    {"TR_CUDA", Kind::kFlag, &Config::cuda, 0, 1, 0, nullptr,
     "0: leave GPUs alone; buffers must be host memory"},
    {"TR_CUDA_STRICT", Kind::kFlag, &Config::cuda_strict, 0, 1, 0, nullptr,
     "1: GPUs that are missing or do not reach each other are an error"},
    {"TR_CUDA_CHANNELS", Kind::kCount, &Config::cuda_channels, 1, 64, 0, "4, or what fits",
     "blocks of a kernel that share the work of one lane"},
    {"TR_CUDA_SLOT_BYTES", Kind::kBytes, &Config::cuda_slot_bytes, kKiB, 16 * kKiB* kKiB, 0,
     "chosen", "a slot of a link between GPUs, of protocol Simple"},
    {"TR_CUDA_COPY_ENGINE", Kind::kCount, &Config::copy_engine, 0, 2, 0, nullptr,
     "moves between windows of GPUs that run on their copy engines: 1: long ones, 2: all that can; "
     "buffers must then lie at the same places on all ranks"},
    {"TR_PROTOCOL", Kind::kText, &Config::protocol, 0, 0, 0, nullptr,
     "protocol of kernels to force: Simple, LL or LL128"},
    {"TR_HOST_ID", Kind::kText, &Config::host_id, 0, 0, 0, nullptr,
     "name of the host; ranks with different names do not share memory"},
    {"TR_TEST_HOSTS", Kind::kText, &Config::test_hosts, 0, 0, 0, nullptr,
     "for tests: hosts that algorithms see, such as 2x2, though all ranks share memory"},
    {"TR_TUNE_FILE", Kind::kText, &Config::tune_file, 0, 0, 0, nullptr,
     "what treering tune measured on this machine, to choose algorithms by; rank 0 reads it"},
    {"TR_EXPLAIN", Kind::kFlag, &Config::explain, 0, 1, 0, nullptr,
     "1: rank 0 of a new communicator writes to stderr what it will choose, and why"},
    {"TR_INTERFACE", Kind::kText, &Config::interfaces, 0, 0, 0, nullptr,
     "network interfaces between hosts: names or networks, such as eth1,10.1.0.0/16; not set: all "
     "that are up"},
    {"TR_PORT_RANGE", Kind::kPorts, &Config::ports, 0, 0, 0, nullptr,
     "ports to listen on for other hosts, one for each rank; not set: any"},
    {"TR_SOCKETS", Kind::kCount, &Config::sockets, 1, 32, 0, "chosen",
     "TCP connections for data between two ranks of different hosts"},
    {"TR_CHECKSUM", Kind::kFlag, &Config::checksum, 0, 1, 0, nullptr,
     "1: every message between hosts has a checksum"},
    {"TR_SECRET", Kind::kSecret, &Config::secret, 0, 0, 0, nullptr,
     "secret that all ranks share, at least 16 characters: who does not know it is kept out"},
    {"TR_SECRET_FILE", Kind::kText, &Config::secret_file, 0, 0, 0, nullptr,
     "file that holds the secret; only its owner may read it"},
    {"TR_REQUIRE_AUTH", Kind::kFlag, &Config::require_auth, 0, 1, 0, nullptr,
     "1: a job that has no key and no secret is refused"},
    {"TR_LOG", Kind::kLogLevel, &Config::log_level, 0, 0, 0, nullptr,
     "what is written to stderr: off, warn, info or debug"},
    {"TR_RANK", Kind::kCount, &Config::rank, 0, kMaxRanks - 1, 0, nullptr,
     "this process's rank (set by treering run)"},
    {"TR_SIZE", Kind::kCount, &Config::size, 1, kMaxRanks, 0, nullptr,
     "number of ranks of the job (set by treering run)"},
    {"TR_LOCAL_RANK", Kind::kCount, &Config::local_rank, 0, kMaxRanks - 1, 0, nullptr,
     "this process's number on its host (set by treering run)"},
    {"TR_LOCAL_SIZE", Kind::kCount, &Config::local_size, 1, kMaxRanks, 0, nullptr,
     "number of the job's ranks on this host (set by treering run)"},
    {"TR_STORE_PORT", Kind::kCount, &Config::store_port, 1, 65'535, 0, "derived from the job",
     "port on which rank 0 meets the others"},
    {"TR_STORE_ADDR", Kind::kText, &Config::store_address, 0, 0, 0, nullptr,
     "name or address of rank 0's host, if the launcher does not say it (MASTER_ADDR)"},
    {"TR_JOB_KEY", Kind::kKey, &Config::job_key, 0, 0, 0, nullptr,
     "secret of the job, the same on all ranks (set by treering run)"},
};

std::string seconds_text(std::int64_t ms) {
  std::string text = std::to_string(ms / 1000);
  if (ms % 1000 != 0) {
    std::string fraction = std::to_string(1000 + ms % 1000).substr(1);
    fraction.erase(fraction.find_last_not_of('0') + 1);
    text += "." + fraction;
  }
  return text;
}

std::string number_text(const EnvVar& var, std::int64_t value) {
  return var.kind == Kind::kSeconds ? seconds_text(value) : std::to_string(value);
}

// Sends and receives are no algorithm's.
constexpr bool has_algorithms(Collective collective) { return collective != Collective::kSendRecv; }

std::string collective_names() {
  std::string names;
  for (int c = 0; c < kNumCollectives; ++c) {
    if (!has_algorithms(Collective(c))) continue;
    names += (names.empty() ? "" : ", ") + std::string(collective_name(Collective(c)));
  }
  return names;
}

std::string type_text(Kind kind) {
  switch (kind) {
    case Kind::kSeconds:
      return "seconds";
    case Kind::kBytes:
      return "bytes";
    case Kind::kCount:
      return "number";
    case Kind::kFlag:
      return "flag";
    case Kind::kLogLevel:
      return "level";
    case Kind::kAlgos:
      return "list";
    case Kind::kKey:
      return "key";
    case Kind::kText:
      return "text";
    case Kind::kSecret:
      return "secret";
    case Kind::kPorts:
      return "ports";
  }
  return "";
}

std::string range_text(const EnvVar& var) {
  switch (var.kind) {
    case Kind::kFlag:
      return "0 or 1";
    case Kind::kLogLevel:
      return "off, warn, info or debug";
    case Kind::kAlgos:
      return "collective:algorithm[,...], collective one of " + collective_names();
    case Kind::kKey:
      return "32 hexadecimal digits";
    case Kind::kText:
      return "any text";
    case Kind::kSecret:
      return "16 characters or more";
    case Kind::kPorts:
      return "one port or two, such as 5000-5019, 1 to 65535";
    case Kind::kSeconds:
    case Kind::kBytes:
    case Kind::kCount:
      break;
  }
  std::string text = number_text(var, var.min) + " to " + number_text(var, var.max);
  if (var.kind == Kind::kBytes) text += " (K, M, G may follow)";
  if (var.special_meaning != nullptr) {
    text += ", or " + number_text(var, var.special) + ": " + var.special_meaning;
  }
  return text;
}

// Whole decimal numbers only: no sign but '-', no spaces, nothing behind.
bool parse_number(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_seconds(std::string_view text, std::int64_t& ms) {
  double seconds = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), seconds, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (!(std::abs(seconds) < 1e12)) return false;
  ms = std::llround(seconds * 1000);
  return true;
}

bool parse_bytes(std::string_view text, std::int64_t& bytes) {
  std::int64_t unit = 1;
  if (!text.empty()) {
    switch (text.back()) {
      case 'k':
      case 'K':
        unit = kKiB;
        break;
      case 'm':
      case 'M':
        unit = kKiB * kKiB;
        break;
      case 'g':
      case 'G':
        unit = kGiB;
        break;
      default:
        break;
    }
  }
  if (unit > 1) text.remove_suffix(1);
  return parse_number(text, bytes) && !__builtin_mul_overflow(bytes, unit, &bytes);
}

bool parse_algos(std::string_view text, std::vector<AlgoChoice>& algos) {
  algos.clear();
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    if (entry.size() + 1 == text.size()) return false;  // a comma at the end
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos || colon + 1 == entry.size()) return false;
    int c = 0;
    while (c < kNumCollectives && entry.substr(0, colon) != collective_name(Collective(c))) ++c;
    if (c == kNumCollectives || !has_algorithms(Collective(c))) return false;
    algos.push_back({static_cast<Collective>(c), std::string(entry.substr(colon + 1))});
  }
  return true;
}

bool parse_key(std::string_view text) {
  return text.size() == 32 &&
         text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

bool parse_ports(std::string_view text, PortRange& ports) {
  const std::size_t dash = text.find('-');
  std::int64_t first = 0, last = 0;
  if (!parse_number(text.substr(0, dash), first)) return false;
  last = first;
  if (dash != text.npos && !parse_number(text.substr(dash + 1), last)) return false;
  if (first < 1 || last < first || last > 65'535) return false;
  ports = {static_cast<int>(first), static_cast<int>(last)};
  return true;
}

bool parse_into(const EnvVar& var, std::string_view text, Config& config) {
  std::int64_t number = 0;
  switch (var.kind) {
    case Kind::kLogLevel: {
      const auto level = parse_log_level(text);
      if (level) config.*std::get<LogLevel Config::*>(var.member) = *level;
      return level.has_value();
    }
    case Kind::kAlgos:
      return parse_algos(text, config.*std::get<std::vector<AlgoChoice> Config::*>(var.member));
    case Kind::kKey:
    case Kind::kText:
    case Kind::kSecret:
      config.*std::get<std::string Config::*>(var.member) = text;
      if (var.kind == Kind::kSecret) return text.size() >= kMinSecretChars;
      return var.kind == Kind::kText || parse_key(text);
    case Kind::kPorts:
      return parse_ports(text, config.*std::get<PortRange Config::*>(var.member));
    case Kind::kSeconds:
      if (!parse_seconds(text, number)) return false;
      break;
    case Kind::kBytes:
      if (!parse_bytes(text, number)) return false;
      break;
    case Kind::kCount:
    case Kind::kFlag:
      if (!parse_number(text, number)) return false;
      break;
  }
  const bool is_special = var.special_meaning != nullptr && number == var.special;
  if (!is_special && (number < var.min || number > var.max)) return false;
  if (var.kind == Kind::kFlag) {
    config.*std::get<bool Config::*>(var.member) = number != 0;
  } else {
    config.*std::get<std::int64_t Config::*>(var.member) = number;
  }
  return true;
}

std::string default_text(const EnvVar& var) {
  const Config defaults;
  switch (var.kind) {
    case Kind::kFlag:
      return defaults.*std::get<bool Config::*>(var.member) ? "1" : "0";
    case Kind::kLogLevel:
      return log_level_name(defaults.*std::get<LogLevel Config::*>(var.member));
    case Kind::kSeconds:
    case Kind::kBytes:
    case Kind::kCount: {
      const std::int64_t value = defaults.*std::get<std::int64_t Config::*>(var.member);
      const bool is_special = var.special_meaning != nullptr && value == var.special;
      return is_special || value >= var.min ? number_text(var, value) : "";
    }
    case Kind::kAlgos:
    case Kind::kKey:
    case Kind::kText:
    case Kind::kSecret:
    case Kind::kPorts:
      return "";
  }
  return "";
}

}  // namespace

Result<Config> load_config() {
  Config config;
  for (const EnvVar& var : kTable) {
    const char* text = std::getenv(var.name);
    if (text == nullptr || *text == '\0') continue;
    if (!parse_into(var, text, config)) {
      // A bad secret is somebody's good one, cut or badly quoted.
      const bool is_secret = var.kind == Kind::kSecret || var.kind == Kind::kKey;
      const std::string value = is_secret ? "not usable" : "\"" + std::string(text) + "\"";
      return invalid_argument("environment variable " + std::string(var.name) + " is " + value +
                              ", but must be " + range_text(var) + " (" + var.meaning + ")");
    }
  }
  return config;
}

std::vector<EnvVarInfo> env_table() {
  std::vector<EnvVarInfo> rows;
  for (const EnvVar& var : kTable) {
    rows.push_back(
        {var.name, type_text(var.kind), default_text(var), range_text(var), var.meaning});
  }
  return rows;
}

std::vector<std::string> unknown_env_vars() {
  std::vector<std::string> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_known = std::any_of(std::begin(kTable), std::end(kTable),
                                      [name](const EnvVar& var) { return name == var.name; });
    if (name.starts_with("TR_") && !is_known) unknown.emplace_back(name);
  }
  return unknown;
}

}  // namespace treering
