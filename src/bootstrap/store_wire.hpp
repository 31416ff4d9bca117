// The bytes between store server and client, after the handshake (core/handshake.hpp). Structs
// travel as they are: all machines that this library runs on are little-endian. Whoever gets here
// has proved the key; sizes and kinds are checked all the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.hpp"

namespace treering::wire {

inline constexpr std::uint32_t kVersion = 2;

// What a rank says first, once both ends have proved the key.
struct Hello {
  std::uint32_t version = kVersion;
  std::uint32_t server_is_here = 0;
  std::uint64_t group = 0;
  std::int32_t size = 0;
  std::int32_t rank = 0;
};
static_assert(sizeof(Hello) == 24);
inline constexpr std::string_view kContext = "store";  // of the handshake

enum class Kind : std::uint32_t {
  kWelcome,   // no body
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
// The blobs of a kGathered; false: it is damaged.
bool parse_gathered(std::string_view body, int ranks, std::vector<std::string>& blobs);

}  // namespace treering::wire
