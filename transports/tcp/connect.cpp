// Builds the transport of several hosts over the shared memory of each.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "transports/exchange.hpp"
#include "transports/find_hosts.hpp"
#include "transports/registry.hpp"
#include "transports/tcp/checksum.hpp"
#include "transports/tcp/hosts_transport.hpp"
#include "transports/tcp/meet.hpp"

namespace treering {
namespace tcp {
namespace {

// Between hosts a message takes longer than between cores, and more must be on their way.
constexpr std::size_t kLeastLinkBytes = 512 << 10;
constexpr int kMostMeetingMs = 20'000;
// A machine's own copying is the limit where ranks of one machine talk TCP, not the connection.
constexpr int kSocketsOfOneMachine = 1;
constexpr int kSockets = 4;

LinkBytes link_bytes(const Transport& local) {
  LinkBytes bytes;
  for (int i = 0; i < kLinks; ++i) {
    const LinkId id = link_of(i, 0, 1);
    std::size_t& b = bytes[static_cast<std::size_t>(i)];
    b = local.link_data_bytes(id.kind);
    // A cast's is in its writer's segment, as large as for everybody.
    if (id.kind != LinkId::Kind::kCast) b = std::max(b, kLeastLinkBytes);
  }
  return bytes;
}

Result<Listener> prepare(const TransportOptions& options) {
  TR_RETURN_IF_ERROR(check_network_security());
  if (options.checksum) TR_RETURN_IF_ERROR(check_checksums());
  TR_ASSIGN_OR_RETURN(Listener listener, Listener::open(options.interfaces, options.ports));
  listener.doorplate().machine = machine_name();
  listener.doorplate().sockets =
      static_cast<std::uint16_t>(options.sockets > 0 ? options.sockets : kSockets);
  return listener;
}

Result<std::vector<Remote>> read(const std::vector<std::string>& plates,
                                 const std::vector<int>& host_of_rank, int rank,
                                 const TransportOptions& options, const Doorplate& own) {
  std::vector<Remote> remotes;
  for (std::size_t r = 0; r < plates.size(); ++r) {
    if (host_of_rank[r] == host_of_rank[static_cast<std::size_t>(rank)]) continue;
    Result<Doorplate> plate = Doorplate::from_bytes(plates[r]);
    if (!plate.ok()) return plate.status().with_context("rank " + std::to_string(r));
    if (options.sockets == 0 && plate.value().machine == own.machine)
      plate.value().sockets = kSocketsOfOneMachine;
    remotes.push_back({static_cast<int>(r), std::move(plate).value()});
  }
  return remotes;
}

Result<std::unique_ptr<Network>> open(const Rendezvous& rendezvous, const Listener& listener,
                                      const std::vector<Remote>& remotes, const LinkBytes& bytes,
                                      Transport& local, const TransportOptions& options) {
  const int rank = rendezvous.rank();
  TR_ASSIGN_OR_RETURN(
      std::vector<PeerSockets> sockets,
      meet(rank, listener, remotes, rendezvous.link_key(),
           std::min(options.timeout_ms, kMostMeetingMs), [&] { return rendezvous.interrupted(); }));
  return Network::start(rank, rendezvous.size(), local.board(rank), bytes, options.checksum,
                        std::move(sockets));
}

// All ranks return the same error: that of a rank which could not reach another rather than that of
// one which was not reached.
Status agree_on_meeting(Rendezvous& rendezvous, const Status& mine) {
  const bool was_not_reached = mine.code() == Code::kTimeout;
  for (const bool late : {false, true}) {
    const bool speak = !mine.ok() && was_not_reached == late;
    TR_RETURN_IF_ERROR(agree(rendezvous, speak ? mine : Status{}));
  }
  return {};
}

}  // namespace
}  // namespace tcp

Result<std::unique_ptr<Transport>> connect_tcp(Rendezvous& rendezvous,
                                               const TransportOptions& options,
                                               std::unique_ptr<Transport> local) {
  using namespace tcp;
  const int rank = rendezvous.rank();
  const std::vector<int>& host_of_rank = local->host_of_rank();
  Result<Listener> listener = prepare(options);
  TR_ASSIGN_OR_RETURN(
      const std::vector<std::string> plates,
      exchange_bytes(rendezvous, listener.status(),
                     listener.ok() ? listener.value().doorplate().to_bytes() : std::string()));
  const Doorplate& own = listener.value().doorplate();
  Result<std::vector<Remote>> remotes = read(plates, host_of_rank, rank, options, own);
  const LinkBytes bytes = link_bytes(*local);
  Result<std::unique_ptr<Network>> network =
      remotes.ok() ? open(rendezvous, listener.value(), remotes.value(), bytes, *local, options)
                   : Result<std::unique_ptr<Network>>(remotes.status());
  TR_RETURN_IF_ERROR(agree_on_meeting(rendezvous, network.status()));
  return std::unique_ptr<Transport>(
      std::make_unique<HostsTransport>(rank, std::move(local), std::move(network).value(), bytes));
}

}  // namespace treering
