// Parsers of what comes from outside, as libFuzzer calls them. The first byte of an input chooses
// the parser, the rest is what it parses. No input may crash one, make it read beyond its input, or
// let a stranger in; where a parser has an inverse, it must lead back.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "bootstrap/host_list.hpp"
#include "bootstrap/store_wire.hpp"
#include "bootstrap/unique_id.hpp"
#include "core/handshake.hpp"
#include "core/net_addresses.hpp"

namespace treering {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// In pieces whose lengths the input chooses, too. Nobody who lacks the key gets in.
void fuzz_handshake(std::string_view text) {
  if (text.empty()) return;
  const bool acceptor = (text[0] & 1) != 0;
  const std::size_t piece = 1 + static_cast<unsigned char>(text[0]) / 2;
  text.remove_prefix(1);
  Handshake handshake =
      Handshake::start(acceptor ? Handshake::Role::kAcceptor : Handshake::Role::kConnector,
                       random_secret().value(), "fuzz")
          .value();
  while (!text.empty() && handshake.is_going()) {
    const std::size_t used = handshake.feed(text.data(), std::min(piece, text.size()));
    require(used >= 1 && used <= kHandshakeBytes);
    require(used == std::min(piece, text.size()) || !handshake.is_going());
    require(handshake.take_output().size() <= kHandshakeBytes);
    text.remove_prefix(used);
  }
  require(!handshake.is_done());
}

void fuzz_unique_id(std::string_view text) {
  IdBytes bytes{};
  std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size()));
  // The checksum is no secret: half of the inputs get a right one.
  if (text.size() > bytes.size() && (text[bytes.size()] & 1) != 0) {
    const Key128 checksum =
        siphash128({'u', 'n', 'i', 'q', 'u', 'e', ' ', 'i', 'd'}, bytes.data(), 112);
    std::memcpy(bytes.data() + 112, checksum.data(), checksum.size());
  }
  const Result<UniqueId> id = parse_unique_id(bytes);
  if (!id.ok()) return;
  require(!id.value().addresses.empty() && id.value().addresses.size() <= 16);
  for (const NetAddress& address : id.value().addresses) {
    require(!to_string(address, id.value().port).empty());
  }
}

void fuzz_wire(std::string_view text) {
  require(!wire::parse_error(text).ok());
  if (text.empty()) return;
  const int ranks = static_cast<unsigned char>(text[0]);
  text.remove_prefix(1);
  std::vector<std::string> blobs;
  if (!wire::parse_gathered(text, ranks, blobs)) return;
  require(blobs.size() == static_cast<std::size_t>(ranks));
  std::size_t bytes = 0;
  for (const std::string& blob : blobs) bytes += 4 + blob.size();
  require(bytes == text.size());
}

void fuzz_host_list(std::string_view text) {
  require(first_of_host_list(text).find_first_of(" $`;&|\n'\"\\/") == std::string::npos);
}

void fuzz_interfaces(std::string_view text) {
  NetInterface eth0;
  require(parse_address("10.1.2.3", eth0.address));
  eth0.is_up = true;
  (void)choose_addresses({eth0}, std::string(text));
  NetAddress address;
  if (!parse_address(std::string(text), address)) return;
  NetAddress again;
  require(parse_address(to_string(address, 0), again) && again.ip == address.ip);
}

}  // namespace
}  // namespace treering

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace treering;
  constexpr void (*kParsers[])(std::string_view) = {fuzz_handshake, fuzz_unique_id, fuzz_wire,
                                                    fuzz_host_list, fuzz_interfaces};
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  kParsers[data[0] % std::size(kParsers)](text);
  return 0;
}
