#include "transports/registry.hpp"

namespace treering {

// One transport today, so there is nothing to choose: shared memory connects all ranks or says
// which pair of ranks it cannot.
Result<std::unique_ptr<Transport>> connect_transport(Rendezvous& rendezvous,
                                                     const TransportOptions& options) {
  return connect_shm(rendezvous, options);
}

}  // namespace treering
