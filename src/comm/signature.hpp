// What a call is, packed into a number: for the signature that every message carries and for the
// board.
#pragma once

#include <cstdint>
#include <string>

#include "algos/registry.hpp"
#include "core/types.hpp"
#include "engine/operation.hpp"

namespace treering {

// The collective, type, operator (avg and pre-multiplied sum told apart), root, whether counts may
// differ between ranks, and the algorithm that serves it.
struct CallKind {
  Collective collective = Collective::kAllReduce;
  Type type = Type::kFloat32;
  std::uint8_t op = 0;  // RedOp, or one of the two below
  bool uneven = false;
  std::uint8_t algorithm = 0;  // its place in the registry, from 1; 0: not chosen yet
  std::int32_t root = 0;
  static constexpr std::uint8_t kAvg = 32;
  static constexpr std::uint8_t kPremulSum = 33;
};

CallKind kind_of(const Call& call);
std::uint8_t number_of(const algos::Algorithm& algorithm);
const char* algorithm_name(const CallKind& kind);  // "" where there is none
std::uint64_t pack(const CallKind& kind);
CallKind unpack(std::uint64_t packed);
// "all_reduce of 1024 float32, sum"
std::string to_string(const CallKind& kind, std::uint64_t count, int size);

// Where the buffer of a call lies that peers reach.
struct BufferPlace {
  std::uint32_t window = 0;
  std::uint64_t offset_bytes = 0;
  bool in_place = false;
};
std::uint64_t pack(const BufferPlace& place);  // never 0
BufferPlace unpack_place(std::uint64_t packed);

std::uint64_t pack(const LinkId& link);  // never 0
LinkId unpack_link(std::uint64_t packed);

// Differs, with overwhelming likelihood, if any of the arguments does.
constexpr std::uint64_t call_signature(std::uint64_t packed_kind, std::uint64_t count,
                                       std::uint64_t sequence) {
  std::uint64_t h = packed_kind;
  for (const std::uint64_t v : {count, sequence}) {
    h = (h ^ v) * 0xD6E8FEB86659FD93ull;
    h ^= h >> 32;
  }
  return h;
}

// Of a send or receive: what both ends share. Source and destination are the link itself.
std::uint64_t sendrecv_signature(const Call& call);

}  // namespace treering
