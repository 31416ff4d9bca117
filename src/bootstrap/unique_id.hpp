// The bytes of a unique id: where the store of one communicator is, and its key. Whoever has them
// may join.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/key128.hpp"
#include "core/net_addresses.hpp"
#include "core/secret.hpp"
#include "core/status.hpp"

namespace treering {

using IdBytes = std::array<unsigned char, 128>;  // as tr_unique_id_t

struct UniqueId {
  std::uint32_t root_pid = 0;
  std::uint16_t port = 0;
  Key128 key{};
  std::vector<NetAddress> addresses;  // candidates, best first

  Secret secret() const;  // the key of the store
};

// Takes as many of the addresses as find room (15 of IPv4, 4 of IPv6); those of loopback always.
IdBytes to_bytes(const UniqueId& id);

// kInvalidArgument: these bytes are no unique id, or damaged; kUnsupported: another version.
Result<UniqueId> parse_unique_id(const IdBytes& bytes);

}  // namespace treering
