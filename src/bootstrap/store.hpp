// The store: the meeting place of the ranks of one job. One process serves it (StoreServer), every
// rank joins it (join_store) and gets a Rendezvous. Over TCP; nothing outside this folder knows
// that.
//
// What goes over a connection (src/bootstrap/store_wire.hpp):
//   both ways         the handshake (core/handshake.hpp): who lacks the key gets no further
//   client -> server  Hello: group, size, rank
//   server -> client  kWelcome or kError
//   then, any number of times: client kGather(blob) -> server kGathered(all blobs), or kError
//   client -> server  kBye
// A gather is one message and one reply per rank, whatever the number of ranks.
//
// A connection that is silent, talks something else or lacks the key is dropped by itself within
// kGreetingMs; it takes no rank's place and delays nobody.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "core/config.hpp"
#include "core/deadline.hpp"
#include "core/net_addresses.hpp"
#include "core/secret.hpp"
#include "core/status.hpp"

namespace treering {

// How long a connection may take to prove that it has the key.
inline constexpr int kGreetingMs = 5000;
inline constexpr std::size_t kMaxBlobBytes = 64 * 1024;

// The group of a unique id, which serves one communicator. A launcher's groups count from 1; ranks
// that have left one may come again, as a further program of the same job does.
inline constexpr std::uint64_t kUniqueIdGroup = 0;

// Serves any number of groups; a group is one communicator-to-be, named by a number. The thread
// that serves ends, and closes the port, when every promised group has come and no rank is left in
// any; the handle may go before that. Any thread may call.
class StoreServer {
 public:
  // Listens on the first of `ports` that is free (0: any that the system gives), at the addresses
  // `only` or, if that is empty, at all. A promise for group `first_group` is made at once.
  static Result<std::unique_ptr<StoreServer>> start(const Secret& key,
                                                    const std::vector<NetAddress>& only,
                                                    const std::vector<std::uint16_t>& ports,
                                                    std::uint64_t first_group, Deadline promise);
  ~StoreServer();

  std::uint16_t port() const;
  // The server will not end before group `group` has come, or `promise` has passed. False: it has
  // ended.
  bool promise(std::uint64_t group, Deadline promise);

 private:
  struct Shared;
  explicit StoreServer(std::shared_ptr<Shared> shared);
  std::shared_ptr<Shared> shared_;
};

struct StoreJoin {
  Secret key{};
  // Candidates, all tried at once: the first whose server proves the key is the one.
  std::vector<NetAddress> addresses;
  std::vector<std::uint16_t> ports;
  std::uint64_t group = 0;
  int size = 1;
  int rank = 0;
  // A server that is not there yet: wait for it. Otherwise it is gone, and that is an error at
  // once.
  bool server_may_be_late = false;
  // The server is in this process. Its replies come to such a rank after all other ranks' replies
  // are on their way, so that a process which exits right after its own init cuts off nobody.
  bool server_is_here = false;
  std::string server_name;  // for error texts: "rank 0", "the root (process 4711)"
};
Result<std::unique_ptr<Rendezvous>> join_store(const StoreJoin& join, const Config& config);

}  // namespace treering
