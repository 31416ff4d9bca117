#include "bootstrap/store_wire.hpp"

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
  if (body.empty() || body[0] <= 0 || body[0] > static_cast<char>(Code::kInternal)) {
    return internal_error("the store sent an error without a code");
  }
  return Status(static_cast<Code>(body[0]), std::string(body.substr(1)));
}

bool parse_gathered(std::string_view body, int ranks, std::vector<std::string>& blobs) {
  blobs.clear();
  for (int r = 0; r < ranks; ++r) {
    std::uint32_t bytes = 0;
    if (body.size() < sizeof bytes) return false;
    std::memcpy(&bytes, body.data(), sizeof bytes);
    body.remove_prefix(sizeof bytes);
    if (body.size() < bytes) return false;
    blobs.emplace_back(body.substr(0, bytes));
    body.remove_prefix(bytes);
  }
  return body.empty();
}

}  // namespace treering::wire
