#include "comm/signature.hpp"

namespace treering {

CallKind kind_of(const Call& call) {
  CallKind k;
  k.collective = call.collective;
  k.type = call.type;
  k.op = static_cast<std::uint8_t>(call.op);
  if (call.divisor > 1) k.op = CallKind::kAvg;
  if (call.scaled) k.op = CallKind::kPremulSum;
  k.uneven = call.uneven;
  k.root = call.root;
  return k;
}

std::uint64_t sendrecv_signature(const Call& call) {
  CallKind shared = kind_of(call);
  shared.root = 0;
  return call_signature(pack(shared), call.count, 0);
}

std::uint8_t number_of(const algos::Algorithm& algorithm) {
  return static_cast<std::uint8_t>(&algorithm - algos::all_algorithms().data() + 1);
}

const char* algorithm_name(const CallKind& kind) {
  const auto all = algos::all_algorithms();
  return kind.algorithm > 0 && kind.algorithm <= all.size() ? all[kind.algorithm - 1u].name : "";
}

std::uint64_t pack(const CallKind& k) {
  return static_cast<std::uint64_t>(k.collective) | static_cast<std::uint64_t>(k.type) << 8 |
         static_cast<std::uint64_t>(k.op) << 16 | static_cast<std::uint64_t>(k.uneven) << 24 |
         static_cast<std::uint64_t>(k.algorithm & 0x7F) << 25 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(k.root)) << 32;
}

CallKind unpack(std::uint64_t packed) {
  CallKind k;
  k.collective = static_cast<Collective>(packed & 0xFF);
  k.type = static_cast<Type>(packed >> 8 & 0xFF);
  k.op = static_cast<std::uint8_t>(packed >> 16 & 0xFF);
  k.uneven = (packed >> 24 & 1) != 0;
  k.algorithm = packed >> 25 & 0x7F;
  k.root = static_cast<std::int32_t>(packed >> 32);
  return k;
}

std::string to_string(const CallKind& k, std::uint64_t count, int size) {
  if (k.collective == Collective::kBarrier) return "barrier";
  std::string text = std::string(collective_name(k.collective)) + (k.uneven ? "_v" : "") + " of " +
                     std::to_string(count) + " " + type_name(k.type);
  if (k.op == CallKind::kAvg) {
    text += ", avg";
  } else if (k.op == CallKind::kPremulSum) {
    text += ", pre-multiplied sum";
  } else if (k.op < static_cast<std::uint8_t>(RedOp::kNone)) {
    text += std::string(", ") + red_op_name(static_cast<RedOp>(k.op));
  }
  const bool rooted = k.collective == Collective::kReduce ||
                      k.collective == Collective::kBroadcast ||
                      k.collective == Collective::kGather || k.collective == Collective::kScatter;
  if (rooted && size > 1) text += ", root " + std::to_string(k.root);
  return text;
}

std::uint64_t pack(const BufferPlace& place) {
  return 1 | static_cast<std::uint64_t>(place.in_place) << 1 |
         static_cast<std::uint64_t>(place.window & 0x3FFF) << 2 | place.offset_bytes << 16;
}

BufferPlace unpack_place(std::uint64_t packed) {
  return {static_cast<std::uint32_t>(packed >> 2 & 0x3FFF), packed >> 16, (packed >> 1 & 1) != 0};
}

std::uint64_t pack(const LinkId& link) {
  return std::uint64_t{1} << 63 | static_cast<std::uint64_t>(link.kind) << 60 |
         static_cast<std::uint64_t>(link.channel) << 52 |
         (static_cast<std::uint64_t>(link.src) & 0x3FFFFFF) << 26 |
         (static_cast<std::uint64_t>(link.dst) & 0x3FFFFFF);
}

LinkId unpack_link(std::uint64_t packed) {
  const auto rank = [](std::uint64_t bits) {
    return static_cast<std::int32_t>((bits & 0x3FFFFFF) << 6) >> 6;  // keeps -1
  };
  LinkId id;
  id.kind = static_cast<LinkId::Kind>(packed >> 60 & 7);
  id.channel = static_cast<std::uint8_t>(packed >> 52 & 0xFF);
  id.src = rank(packed >> 26);
  id.dst = rank(packed);
  return id;
}

}  // namespace treering
