// The transports that this build has, and the one door through which a communicator gets its own.
//
// Each transport's folder defines one factory, declared here; nothing else of a folder is seen
// outside it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/config.hpp"
#include "core/status.hpp"
#include "transports/transport.hpp"

namespace treering {

class Rendezvous;  // bootstrap/rendezvous.hpp

// Must be equal on all ranks but where it says otherwise; connect_transport compares the sizes.
struct TransportOptions {
  // Slot data per link, in bytes, rounded up to whole pages; Transport::link_data_bytes says the
  // result.
  std::size_t link_bytes = 256 * 1024;      // LinkId::Kind::kPair, each channel
  std::size_t cast_bytes = 1024 * 1024;     // kCast
  std::size_t sendrecv_bytes = 256 * 1024;  // kSendRecv
  // Ranks with different host ids never try to share memory. Empty: this machine's boot id. For
  // tests and for containers that must be kept apart (TR_HOST_ID). May differ between ranks.
  std::string host_id;
  // TCP between hosts. Which interfaces peers are told of: names or networks, separated by commas;
  // empty: all that are up. May differ between ranks, as may the ports to listen on (0: any).
  std::string interfaces;
  PortRange ports;
  int sockets = 0;        // data connections to each rank of another host; 0: chosen
  bool checksum = false;  // of every message between hosts
  // The limit of the hand-over of segments, and of meeting other hosts; the rendezvous has a limit
  // of its own. May differ.
  int timeout_ms = 30000;
};

// Collective over the ranks of `rendezvous`. Either every rank gets its transport, or every rank
// gets an error that names the rank (or the pair) and the reason; the errors of different ranks
// tell of the same cause, unless a rank died in between.
Result<std::unique_ptr<Transport>> connect_transport(Rendezvous& rendezvous,
                                                     const TransportOptions& options);

// Shared memory of the ranks of each host (transports/shm). Where there are several hosts, the
// links between them are missing.
Result<std::unique_ptr<Transport>> connect_shm(Rendezvous& rendezvous,
                                               const TransportOptions& options,
                                               const std::vector<int>& host_of_rank);

// TCP between the hosts (transports/tcp), beside the shared memory of each.
Result<std::unique_ptr<Transport>> connect_tcp(Rendezvous& rendezvous,
                                               const TransportOptions& options,
                                               std::unique_ptr<Transport> local);

}  // namespace treering
