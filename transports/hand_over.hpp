// The hand-over: every rank gives a descriptor, that of memory, to every rank of another process.
//
// Each rank listens on an abstract Unix socket (no name in any file system), whose random name and
// token go round by the rendezvous. Each rank then connects to every other one, sends one packet
// (rank, the listener's token, its descriptor) and waits for one byte that says it came; and
// accepts one such packet from every other one. All of it happens in one poll loop with one
// deadline, so that no order of arrival can block, and a rank that dies is noticed at once by its
// connections. Strangers who connect (other users, a wrong token, garbage, silence) are dropped or
// ignored and cost nobody a place.
#pragma once

#include <functional>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "core/status.hpp"
#include "core/unique_fd.hpp"
#include "transports/process.hpp"

namespace treering {

// Where a rank listens. Plain bytes: part of a rendezvous blob.
struct Doorbell {
  Token name{};    // the socket's name is "treering-" and this in hexadecimal
  Token secret{};  // proves that a caller has read the rendezvous
};

// A rank to exchange descriptors with.
struct Neighbour {
  int rank = -1;
  Doorbell doorbell;
  bool keep_connection = false;  // the same at both ends: the end of the connection shows who ended
};

// What is known of a neighbour afterwards, beside its descriptor.
struct Received {
  pid_t pid = 0;        // of its process, as this process sees it; 0 = not visible from here
  UniqueFd connection;  // at its end of file the neighbour is gone; valid if keep_connection
  UniqueFd own_end;     // the neighbour watches the other end of this; valid if keep_connection
};

// What to do with the descriptor that came from neighbours[i]: at once, so that few are open at a
// time, whatever the number of neighbours.
using TakeFile = std::function<Status(std::size_t i, UniqueFd file)>;

// Asked several times a second while waiting: true ends the hand-over with kAborted.
using Interrupted = std::function<bool()>;

class HandOver {
 public:
  // Starts to listen; callers may come from now on.
  static Result<HandOver> open();

  const Doorbell& doorbell() const { return doorbell_; }

  // Gives `file` to each neighbour and takes theirs; the results are in the neighbours' order. Goes
  // on with the other neighbours after a failure, one of `take` too, so that one failing pair costs
  // nobody else the deadline; returns the first failure. Collective over the neighbours; once.
  Result<std::vector<Received>> run(int rank, int file, const std::vector<Neighbour>& neighbours,
                                    const TakeFile& take, int timeout_ms,
                                    const Interrupted& interrupted = {});

 private:
  HandOver(Doorbell doorbell, UniqueFd listener)
      : doorbell_(doorbell), listener_(std::move(listener)) {}

  Doorbell doorbell_;
  UniqueFd listener_;
};

}  // namespace treering
