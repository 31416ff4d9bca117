#include "core/link_id.hpp"

namespace treering {

std::string to_string(const LinkId& id) {
  std::string text = std::to_string(id.src) + "->";
  text += id.kind == LinkId::Kind::kCast ? "all" : std::to_string(id.dst);
  if (id.kind == LinkId::Kind::kSendRecv) text += " send/recv";
  if (id.channel > 0) text += " channel " + std::to_string(id.channel);
  return text;
}

}  // namespace treering
