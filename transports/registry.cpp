#include "transports/registry.hpp"

#include <utility>

#include "transports/find_hosts.hpp"

namespace treering {

Result<std::unique_ptr<Transport>> connect_transport(Rendezvous& rendezvous,
                                                     const TransportOptions& options) {
  TR_ASSIGN_OR_RETURN(const std::vector<int> hosts, find_hosts(rendezvous, options.host_id));
  Result<std::unique_ptr<Transport>> local = connect_shm(rendezvous, options, hosts);
  if (!local.ok() || is_one_host(hosts)) return local;
  return connect_tcp(rendezvous, options, std::move(local).value());
}

}  // namespace treering
