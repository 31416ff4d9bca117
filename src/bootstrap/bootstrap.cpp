#include "bootstrap/bootstrap.hpp"

#include <arpa/inet.h>
#include <cstring>
#include <mutex>
#include <netinet/in.h>
#include <unistd.h>

#include "bootstrap/store.hpp"
#include "core/key128.hpp"

namespace treering {
namespace {

struct UniqueId {
  char magic[8];
  std::uint32_t version;
  std::uint32_t address;  // IPv4, host byte order
  std::uint32_t port;
  std::uint32_t root_pid;
  Key128 key;
  unsigned char zeros[72];
  Key128 checksum;  // of everything above
};
static_assert(sizeof(UniqueId) == sizeof(IdBytes));
constexpr char kIdMagic[8] = {'T', 'R', 'E', 'E', 'R', 'I', 'N', 'G'};
constexpr std::uint32_t kIdVersion = 1;

// Fixed keys: these hashes keep no secret, they only tell things apart.
constexpr Key128 kChecksumKey = {'u', 'n', 'i', 'q', 'u', 'e', ' ', 'i', 'd'};
constexpr Key128 kJobKey = {'j', 'o', 'b'};

Key128 checksum_of(const UniqueId& id) {
  return siphash128(kChecksumKey, &id, offsetof(UniqueId, checksum));
}

Status check_rank(int size, int rank) {
  if (size < 1 || size > kMaxRanks) {
    return invalid_argument("a communicator of " + std::to_string(size) + " ranks: must be 1 to " +
                            std::to_string(kMaxRanks));
  }
  if (rank < 0 || rank >= size) {
    return invalid_argument("rank " + std::to_string(rank) + " of a communicator of " +
                            std::to_string(size) + ": must be 0 to " + std::to_string(size - 1));
  }
  return {};
}

// A job of one rank needs nobody.
class SoloRendezvous final : public Rendezvous {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Result<std::vector<std::string>> all_gather(const std::string& blob) override {
    return std::vector<std::string>{blob};
  }
  Secret link_key() const override { return {}; }  // no links
};

// Eight ports between 20000 and 32767: above the services of most machines, below the ports that
// Linux gives to outgoing connections (from 32768).
std::vector<std::uint16_t> candidate_ports(const Key128& key) {
  constexpr std::uint32_t kFirst = 20'000;
  constexpr std::uint32_t kCount = 12'768;
  std::vector<std::uint16_t> ports;
  for (std::uint32_t i = 0; i < 8; ++i) {
    const Key128 hash = siphash128(key, &i, sizeof i);
    std::uint32_t word = 0;
    std::memcpy(&word, hash.data(), sizeof word);
    ports.push_back(static_cast<std::uint16_t>(kFirst + word % kCount));
  }
  return ports;
}

int hex_digit(char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; }

Key128 key_of_job(const LaunchEnv& env, const Config& config) {
  Key128 key{};
  if (config.job_key.size() == 2 * key.size()) {  // load_config admits hexadecimal digits only
    for (std::size_t i = 0; i < key.size(); ++i) {
      const int byte = hex_digit(config.job_key[2 * i]) * 16 + hex_digit(config.job_key[2 * i + 1]);
      key[i] = static_cast<unsigned char>(byte);
    }
    return key;
  }
  const std::string name = env.source + "|" + env.job + "|" + std::to_string(::getuid());
  return siphash128(kJobKey, name.data(), name.size());
}

// The store of this process's job, if this is rank 0, and how often the process has joined.
struct JobState {
  std::mutex mutex;
  std::uint64_t joined = 0;
  std::unique_ptr<StoreServer> server;
  pid_t server_pid = 0;  // a forked child has no serving thread
};
JobState& job_state() {
  static JobState state;
  return state;
}

}  // namespace

Result<IdBytes> start_root(const Config&) {
  UniqueId id{};
  std::memcpy(id.magic, kIdMagic, sizeof kIdMagic);
  id.version = kIdVersion;
  id.address = INADDR_LOOPBACK;
  id.root_pid = static_cast<std::uint32_t>(::getpid());
  TR_ASSIGN_OR_RETURN(id.key, random_key());
  TR_ASSIGN_OR_RETURN(const auto server,
                      StoreServer::start(id.key, {0}, kUniqueIdGroup, Deadline::never()));
  id.port = server->port();
  id.checksum = checksum_of(id);
  IdBytes bytes;
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

Result<std::unique_ptr<Rendezvous>> join_root(const IdBytes& bytes, int size, int rank,
                                              const Config& config) {
  TR_RETURN_IF_ERROR(check_rank(size, rank));
  UniqueId id;
  std::memcpy(&id, bytes.data(), sizeof id);
  if (std::memcmp(id.magic, kIdMagic, sizeof kIdMagic) != 0) {
    return invalid_argument(
        "this is no unique id: pass the bytes that tr_get_unique_id gave to one rank, all " +
        std::to_string(sizeof id) + " of them");
  }
  if (id.checksum != checksum_of(id)) {
    return invalid_argument(
        "the unique id is damaged (its checksum is wrong): was it cut or "
        "changed on its way to rank " +
        std::to_string(rank) + "?");
  }
  if (id.version != kIdVersion) {
    return unsupported("a unique id of version " + std::to_string(id.version) +
                       ", this library knows version " + std::to_string(kIdVersion) +
                       ": use one version in all ranks");
  }
  StoreJoin join;
  join.key = id.key;
  join.ports = {static_cast<std::uint16_t>(id.port)};
  join.group = kUniqueIdGroup;
  join.size = size;
  join.rank = rank;
  join.server_is_here = id.root_pid == static_cast<std::uint32_t>(::getpid());
  join.server_name =
      "the process that made the unique id (process " + std::to_string(id.root_pid) + ")";
  return join_store(join, config);
}

Result<std::unique_ptr<Rendezvous>> join_env(const LaunchEnv& env, const Config& config) {
  TR_RETURN_IF_ERROR(check_rank(env.size, env.rank));
  if (env.size == 1) return std::unique_ptr<Rendezvous>(std::make_unique<SoloRendezvous>());

  StoreJoin join;
  join.key = key_of_job(env, config);
  join.ports = config.store_port > 0
                   ? std::vector<std::uint16_t>{static_cast<std::uint16_t>(config.store_port)}
                   : candidate_ports(join.key);
  join.size = env.size;
  join.rank = env.rank;
  join.server_may_be_late = true;
  join.server_is_here = env.rank == 0;
  join.server_name = "rank 0 (" + env.source + ")";
  JobState& state = job_state();
  {
    const std::lock_guard lock(state.mutex);
    join.group = ++state.joined;
    if (env.rank == 0) {
      // The promise lasts until this rank itself has joined, a few lines on.
      const Deadline promise = Deadline::after_ms(config.init_timeout_ms);
      if (state.server_pid != ::getpid() || !state.server->promise(join.group, promise)) {
        TR_ASSIGN_OR_RETURN(state.server,
                            StoreServer::start(join.key, join.ports, join.group, promise));
        state.server_pid = ::getpid();
      }
      join.ports = {state.server->port()};
    }
  }
  return join_store(join, config);
}

}  // namespace treering
