// Which ranks share a host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.hpp"

namespace treering {

class Rendezvous;

// The number of this process's namespace of the kind ("net", "pid"); 0 if it cannot be found out.
std::uint64_t namespace_number(const char* kind);

// Names what loopback addresses reach: this boot of this machine, and the network namespace.
std::string machine_name();

// Collective: the host of each rank, numbered from 0 in the order of their lowest ranks. Ranks are
// on one host if they have the same boot id, or the same host_id in its place where one is given
// (TR_HOST_ID), and the same network namespace, through which memory is handed over.
Result<std::vector<int>> find_hosts(Rendezvous& rendezvous, const std::string& host_id);

// Is there only one?
bool is_one_host(const std::vector<int>& host_of_rank);

}  // namespace treering
