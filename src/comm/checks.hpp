// Checks of arguments that several operations share. Each error says what was wrong and what is
// right.
#pragma once

#include <cstdint>
#include <string>

#include "comm/request.hpp"
#include "core/status.hpp"
#include "core/types.hpp"

namespace treering::checks {

// The largest buffer that addresses can describe.
inline constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 47;

inline constexpr std::uint64_t kSurelyFine = std::uint64_t{1} << 22;

inline Status count(const char* name, std::uint64_t elems, std::uint64_t parts, Type type) {
  if (elems <= kSurelyFine && parts <= kSurelyFine) return {};  // no division on the hot path
  const std::uint64_t limit = kMaxBytes / type_bytes(type) / (parts == 0 ? 1 : parts);
  if (elems <= limit) return {};
  return invalid_argument(std::string(name) + " is " + std::to_string(elems) +
                          ", more elements of " + type_name(type) +
                          " than any buffer can hold; was it negative?");
}

inline Status buffer(const char* name, const void* ptr, std::uint64_t bytes, Type type) {
  if (bytes == 0) return {};
  if (ptr == nullptr)
    return invalid_argument(std::string(name) + " is NULL, but the count is not zero");
  if ((reinterpret_cast<std::uintptr_t>(ptr) & (type_bytes(type) - 1)) != 0) {  // powers of two
    return invalid_argument(std::string(name) + " is not aligned to its element type (" +
                            type_name(type) + ", " + std::to_string(type_bytes(type)) + " bytes)");
  }
  return {};
}

inline Status rank(const char* name, int value, int size) {
  if (value >= 0 && value < size) return {};
  return invalid_argument(std::string(name) + " is " + std::to_string(value) +
                          "; it must be a rank, 0 to " + std::to_string(size - 1));
}

// Buffers may be the same by the rules of the operation (`in_place`), else they must not overlap.
inline Status overlap(const Request& r) {
  if (r.in_place || r.in_bytes == 0 || r.out_bytes == 0) return {};
  const bool apart = r.call.in + r.in_bytes <= r.call.out || r.call.out + r.out_bytes <= r.call.in;
  if (apart) return {};
  return invalid_argument(
      "sendbuf and recvbuf overlap, but not in the way that the operation defines as in place");
}

inline Status reduction(const OpSpec& op, Type type, bool prefix) {
  if (op.scaled && !is_float(type)) {
    return invalid_argument(std::string("a pre-multiplied sum needs a floating-point type, not ") +
                            type_name(type));
  }
  if (op.average && prefix) return unsupported("avg is not defined for scan and exscan; use sum");
  return {};
}

}  // namespace treering::checks
