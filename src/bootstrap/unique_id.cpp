#include "bootstrap/unique_id.hpp"

#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <type_traits>

namespace treering {
namespace {

struct IdLayout {
  char magic[8];
  std::uint32_t version;
  std::uint32_t root_pid;
  std::uint16_t port;
  std::uint16_t address_bytes;
  // One after the other: 4 or 6, then 4 or 16 bytes; zeros behind.
  unsigned char addresses[76];
  Key128 key;
  Key128 checksum;  // of everything above
};
static_assert(sizeof(IdLayout) == sizeof(IdBytes) && std::is_trivially_copyable_v<IdLayout>);
constexpr char kIdMagic[8] = {'T', 'R', 'E', 'E', 'R', 'I', 'N', 'G'};
constexpr std::uint32_t kIdVersion = 2;

// A fixed key: this hash keeps no secret, it finds damage.
constexpr Key128 kChecksumKey = {'u', 'n', 'i', 'q', 'u', 'e', ' ', 'i', 'd'};

Key128 checksum_of(const IdLayout& id) {
  return siphash128(kChecksumKey, &id, offsetof(IdLayout, checksum));
}

std::size_t ip_bytes(const NetAddress& a) { return a.family == AF_INET ? 4 : 16; }

Status damaged() {
  return invalid_argument(
      "the unique id is damaged (its checksum is wrong): was it cut or changed on its way?");
}

}  // namespace

Secret UniqueId::secret() const {
  Secret secret{};
  std::memcpy(secret.data(), key.data(), key.size());
  return derive_secret(secret, "the store of a unique id");
}

IdBytes to_bytes(const UniqueId& id) {
  IdLayout out{};
  std::memcpy(out.magic, kIdMagic, sizeof kIdMagic);
  out.version = kIdVersion;
  out.root_pid = id.root_pid;
  out.port = id.port;
  out.key = id.key;
  std::size_t kept = 0;  // for what must find room
  for (const NetAddress& a : id.addresses) kept += a.is_loopback != 0 ? 1 + ip_bytes(a) : 0;
  std::size_t used = 0;
  for (const NetAddress& a : id.addresses) {
    const std::size_t bytes = 1 + ip_bytes(a);
    if (a.is_loopback != 0) kept -= bytes;
    // A link-local address needs an interface, and the reader's have other names.
    if (a.is_link_local() || used + bytes + kept > sizeof out.addresses) continue;
    out.addresses[used] = a.family == AF_INET ? 4 : 6;
    std::memcpy(out.addresses + used + 1, a.ip.data(), bytes - 1);
    used += bytes;
  }
  out.address_bytes = static_cast<std::uint16_t>(used);
  out.checksum = checksum_of(out);
  IdBytes bytes;
  std::memcpy(bytes.data(), &out, sizeof out);
  return bytes;
}

Result<UniqueId> parse_unique_id(const IdBytes& bytes) {
  IdLayout in;
  std::memcpy(&in, bytes.data(), sizeof in);
  if (std::memcmp(in.magic, kIdMagic, sizeof kIdMagic) != 0) {
    return invalid_argument(
        "this is no unique id: pass the bytes that tr_get_unique_id gave to one rank, all " +
        std::to_string(sizeof in) + " of them");
  }
  if (in.checksum != checksum_of(in)) return damaged();
  if (in.version != kIdVersion) {
    return unsupported("a unique id of version " + std::to_string(in.version) +
                       ", this library knows version " + std::to_string(kIdVersion) +
                       ": use one version in all ranks");
  }
  UniqueId id;
  id.root_pid = in.root_pid;
  id.port = in.port;
  id.key = in.key;
  // The checksum has no secret: anybody can make an id whose lengths are wrong.
  if (in.port == 0 || in.address_bytes == 0 || in.address_bytes > sizeof in.addresses) {
    return damaged();
  }
  for (std::size_t at = 0; at < in.address_bytes;) {
    NetAddress a;
    a.family = in.addresses[at] == 4 ? AF_INET : AF_INET6;
    const std::size_t end = at + 1 + ip_bytes(a);
    if ((in.addresses[at] != 4 && in.addresses[at] != 6) || end > in.address_bytes) {
      return damaged();
    }
    std::memcpy(a.ip.data(), in.addresses + at + 1, ip_bytes(a));
    id.addresses.push_back(a);
    at = end;
  }
  return id;
}

}  // namespace treering
