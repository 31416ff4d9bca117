#include "bootstrap/store_wire.hpp"

#include <cstddef>
#include <cstring>

namespace treering::wire {

std::string frame(Kind kind, std::string_view body) {
  const FrameHead head{kind, static_cast<std::uint32_t>(body.size())};
  std::string out(sizeof head, '\0');
  std::memcpy(out.data(), &head, sizeof head);
  return out.append(body);
}

std::string error_body(const Status& status) {
  return static_cast<char>(status.code()) + status.message();
}

Status parse_error(std::string_view body) {
  if (body.empty()) return internal_error("the store sent an error without a code");
  return Status(static_cast<Code>(body[0]), std::string(body.substr(1)));
}

// The two proofs hash different lengths, so that neither can be passed off as the other.
Key128 client_proof(const Key128& key, const Key128& server_nonce, const Hello& hello) {
  constexpr std::size_t kCovered = offsetof(Hello, proof);
  unsigned char message[sizeof(Key128) + kCovered];
  std::memcpy(message, server_nonce.data(), server_nonce.size());
  std::memcpy(message + server_nonce.size(), &hello, kCovered);
  return siphash128(key, message, sizeof message);
}

Key128 server_proof(const Key128& key, const Key128& client_nonce) {
  return siphash128(key, client_nonce.data(), client_nonce.size());
}

}  // namespace treering::wire
