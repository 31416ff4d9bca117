// The bytes between store server and client. Both run on one host and one architecture, so that
// structs travel as they are; magic and version guard against everything else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/key128.hpp"
#include "core/status.hpp"

namespace treering::wire {

inline constexpr std::uint32_t kMagic = 0x54525331;  // "1SRT" in memory
inline constexpr std::uint32_t kVersion = 1;

struct Challenge {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  Key128 nonce{};
};
static_assert(sizeof(Challenge) == 24);

struct Hello {
  std::uint32_t magic = kMagic;
  std::uint32_t server_is_here = 0;
  std::uint64_t group = 0;
  std::int32_t size = 0;
  std::int32_t rank = 0;
  Key128 nonce{};
  Key128 proof{};  // hash under the key of the server's nonce and of everything above
};
static_assert(sizeof(Hello) == 56);

enum class Kind : std::uint32_t {
  kWelcome,   // body: the server's proof; if the rank is refused, an error (as in kError) follows
  kWrongKey,  // no body
  kError,     // body: one byte Code, then text: the group has failed, nothing else will come
  kGather,    // body: GatherHead, then the blob
  kGathered,  // body: per rank, 32 bits of length and the blob
  kNotice,    // body: text to log while the client waits
  kBye,       // no body
};

struct FrameHead {
  Kind kind;
  std::uint32_t bytes;  // of the body
};
static_assert(sizeof(FrameHead) == 8);

struct GatherHead {
  std::int64_t timeout_ms;
  std::int64_t warn_ms;  // 0: never
};

// Head and body together, so that they leave in one segment.
std::string frame(Kind kind, std::string_view body);

std::string error_body(const Status& status);
Status parse_error(std::string_view body);

Key128 client_proof(const Key128& key, const Key128& server_nonce, const Hello& hello);
Key128 server_proof(const Key128& key, const Key128& client_nonce);

}  // namespace treering::wire
