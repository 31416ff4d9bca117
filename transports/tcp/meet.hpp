// Meeting: how the ranks of different hosts get their connections.
//
// Every rank listens on one port and tells the others, by the rendezvous, at which addresses. Of
// two ranks the higher one connects. It tries all addresses of the lower one at once, and of those
// that lead to it the first that answers is used, for the control connection and then for data. A
// connection counts when both ends have proved the communicator's key (core/handshake.hpp) and the
// connector has chosen it; so an address that leads to another machine costs nothing, and whoever
// else connects is dropped without a word and takes nobody's place. Nobody listens afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/net_addresses.hpp"
#include "core/secret.hpp"
#include "core/status.hpp"
#include "core/unique_fd.hpp"
#include "transports/hand_over.hpp"
#include "transports/tcp/network.hpp"

namespace treering::tcp {

// Where a rank listens: what the others need to know.
struct Doorplate {
  std::uint16_t port = 0;
  std::uint16_t sockets = 1;  // data connections that it would have to each peer
  std::string machine;        // equal: loopback addresses lead to each other
  std::vector<NetAddress> addresses;

  std::string to_bytes() const;
  static Result<Doorplate> from_bytes(const std::string& bytes);
};

class Listener {
 public:
  // interfaces, ports: as TR_INTERFACE and TR_PORT_RANGE say. Listens at the addresses of these
  // interfaces, at all if none are named.
  static Result<Listener> open(const std::string& interfaces, const PortRange& ports);
  const Doorplate& doorplate() const { return doorplate_; }
  Doorplate& doorplate() { return doorplate_; }
  const std::vector<UniqueFd>& sockets() const { return sockets_; }

 private:
  std::vector<UniqueFd> sockets_;
  Doorplate doorplate_;
};

struct Remote {
  int rank = -1;
  Doorplate doorplate;
};

// Collective over the ranks of different hosts. On success the sockets of each remote rank, in
// their order; they do not block. Ends within timeout_ms, at once if no address leads anywhere.
// The error names the peer and every address with what became of it. interrupted: asked now and
// then; true ends it.
Result<std::vector<PeerSockets>> meet(int rank, const Listener& listener,
                                      const std::vector<Remote>& remotes, const Secret& key,
                                      int timeout_ms, const Interrupted& interrupted);

}  // namespace treering::tcp
