// Rendezvous: how the ranks of a communicator-to-be exchange small blobs before any link exists.
//
// Three kinds: over the TCP store of the unique id (bootstrap/store.hpp), over an existing
// communicator (comm/), which tr_comm_split and tr_comm_register use, and over the boards of one
// that has failed, for tr_comm_shrink.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/secret.hpp"
#include "core/status.hpp"

namespace treering {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Collective, the k-th call of every rank together: every rank's blob, by rank. Blobs may differ
  // in length, up to 64 KiB each. Blocks until all have come or the deadline passes; the error then
  // names the ranks that did not come. Not for the call path: it allocates and makes system calls.
  virtual Result<std::vector<std::string>> all_gather(const std::string& blob) = 0;
  // Ranks that have met wait for each other elsewhere, too. True: give up, because of
  // tr_comm_abort. Any thread.
  virtual bool interrupted() const { return false; }
  // The key of this communicator's links, which its connections prove (core/handshake.hpp): the
  // same on all ranks, another one for each communicator, derived from the key of the job. Only as
  // secret as that: without a secret (README, "Secrets") it merely keeps jobs apart.
  virtual Secret link_key() const = 0;
};

}  // namespace treering
