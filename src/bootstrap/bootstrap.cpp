#include "bootstrap/bootstrap.hpp"

#include <cstring>
#include <mutex>
#include <unistd.h>

#include "bootstrap/job_key.hpp"
#include "bootstrap/store.hpp"
#include "core/log.hpp"
#include "core/net_addresses.hpp"

namespace treering {
namespace {

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

constexpr std::size_t kMostPorts = 64;  // that are tried at once

// Eight ports between 20000 and 32767: above the services of most machines, below the ports that
// Linux gives to outgoing connections (from 32768).
std::vector<std::uint16_t> candidate_ports(const Secret& key) {
  constexpr std::uint32_t kFirst = 20'000;
  constexpr std::uint32_t kCount = 12'768;
  std::vector<std::uint16_t> ports;
  for (std::uint32_t i = 0; i < 8; ++i) {
    const Secret hash = derive_secret(key, "port " + std::to_string(i));
    std::uint32_t word = 0;
    std::memcpy(&word, hash.data(), sizeof word);
    ports.push_back(static_cast<std::uint16_t>(kFirst + word % kCount));
  }
  return ports;
}

// Where a store listens: at the chosen addresses, or at all if nothing was chosen.
std::vector<NetAddress> listening_at(const std::string& wanted,
                                     const std::vector<NetAddress>& addresses) {
  return wanted.empty() ? std::vector<NetAddress>() : addresses;
}

// The host that rank 0 runs on, in the user's words or the launcher's.
const std::string& store_host(const LaunchEnv& env, const Config& config) {
  return config.store_address.empty() ? env.host_of_rank_0 : config.store_address;
}

Result<std::vector<NetAddress>> addresses_of_rank_0(const LaunchEnv& env, const Config& config) {
  if (!env.several_hosts) return own_addresses("127.0.0.1");
  const std::string& host = store_host(env, config);
  if (host.empty()) {
    return invalid_argument("the ranks are on several hosts, and " + env.source +
                            " does not say on which one rank 0 is: set MASTER_ADDR or "
                            "TR_STORE_ADDR to its name or address, on all ranks");
  }
  auto addresses = resolve_host(host);
  if (!addresses.ok()) {
    return Status(addresses.status().code(), addresses.status().message() +
                                                 "; that is where rank 0 should be (MASTER_ADDR, "
                                                 "TR_STORE_ADDR); an address does as well");
  }
  return addresses;
}

// The store of this process's job, if this is rank 0, and how often the process has joined.
struct JobState {
  std::mutex mutex;
  std::uint64_t joined = 0;
  std::unique_ptr<StoreServer> server;
  pid_t server_pid = 0;  // a forked child has no serving thread
  bool has_warned = false;
};
JobState& job_state() {
  static JobState state;
  return state;
}

// Rank 0: the store of the job is there and will wait for this communicator.
Status serve_job(JobState& state, const LaunchEnv& env, const Config& config, bool is_secret,
                 const std::string& wanted, StoreJoin& join) {
  if (!is_secret && env.several_hosts && !state.has_warned) {
    state.has_warned = true;
    TR_LOG_WARN(0,
                "this job has no secret, and %s gives it none: whoever reaches this host may join; "
                "set TR_SECRET or TR_SECRET_FILE on all ranks",
                env.source.c_str());
  }
  // The promise lasts until this rank itself has joined, a few lines on.
  const Deadline promise = Deadline::after_ms(config.init_timeout_ms);
  if (state.server_pid != ::getpid() || !state.server->promise(join.group, promise)) {
    TR_ASSIGN_OR_RETURN(
        state.server, StoreServer::start(join.key, listening_at(wanted, join.addresses), join.ports,
                                         join.group, promise));
    state.server_pid = ::getpid();
  }
  join.ports = {state.server->port()};
  return {};
}

}  // namespace

Result<IdBytes> start_root(const Config& config) {
  UniqueId id;
  id.root_pid = static_cast<std::uint32_t>(::getpid());
  TR_ASSIGN_OR_RETURN(id.key, random_key());
  // What cannot keep strangers out does not go on the network.
  const std::string wanted = has_sodium() ? config.interfaces : "127.0.0.1";
  TR_ASSIGN_OR_RETURN(id.addresses, own_addresses(wanted));
  TR_ASSIGN_OR_RETURN(
      const auto server,
      StoreServer::start(id.secret(), listening_at(wanted, id.addresses), ports_of(config.ports),
                         kUniqueIdGroup, Deadline::never()));
  id.port = server->port();
  return to_bytes(id);
}

Result<std::unique_ptr<Rendezvous>> join_root(const IdBytes& bytes, int size, int rank,
                                              const Config& config) {
  TR_RETURN_IF_ERROR(check_rank(size, rank));
  TR_ASSIGN_OR_RETURN(const UniqueId id, parse_unique_id(bytes));
  StoreJoin join;
  join.key = id.secret();
  join.addresses = id.addresses;
  join.ports = {id.port};
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
  TR_ASSIGN_OR_RETURN(const JobKey key, job_key(env, config));
  join.key = key.key;
  if (env.several_hosts) TR_RETURN_IF_ERROR(check_network_security());
  if (config.store_port > 0) {
    join.ports = {static_cast<std::uint16_t>(config.store_port)};
  } else {
    join.ports = config.ports.first > 0 ? ports_of(config.ports) : candidate_ports(join.key);
    if (join.ports.size() > kMostPorts) join.ports.resize(kMostPorts);
  }
  join.size = env.size;
  join.rank = env.rank;
  join.server_may_be_late = true;
  join.server_is_here = env.rank == 0;
  join.server_name = "rank 0 (" + env.source + ")";
  const std::string wanted = env.several_hosts ? config.interfaces : "127.0.0.1";
  if (env.rank > 0) {
    TR_ASSIGN_OR_RETURN(join.addresses, addresses_of_rank_0(env, config));
    if (env.several_hosts) join.server_name += " on " + store_host(env, config);
  } else {
    TR_ASSIGN_OR_RETURN(join.addresses, own_addresses(wanted));
  }
  {
    JobState& state = job_state();
    const std::lock_guard lock(state.mutex);
    join.group = ++state.joined;
    if (env.rank == 0)
      TR_RETURN_IF_ERROR(serve_job(state, env, config, key.is_secret, wanted, join));
  }
  return join_store(join, config);
}

}  // namespace treering
