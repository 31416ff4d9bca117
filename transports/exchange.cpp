#include "transports/exchange.hpp"

#include "bootstrap/rendezvous.hpp"

namespace treering {

// A blob is the code in one byte, then the bytes (success) or the message (failure).
Result<std::vector<std::string>> exchange_bytes(Rendezvous& rendezvous, const Status& status,
                                                const std::string& bytes) {
  std::string blob(1, static_cast<char>(status.code()));
  blob += status.ok() ? bytes : status.message();
  Result<std::vector<std::string>> gathered = rendezvous.all_gather(blob);
  // When I failed, the others may be gone or late because of me: my own reason says more.
  if (!gathered.ok()) return status.ok() ? gathered.status() : status;
  std::vector<std::string>& all = gathered.value();
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) return internal_error("rank " + std::to_string(r) + " sent an empty blob");
    const auto its_code = static_cast<Code>(all[r][0]);
    all[r].erase(0, 1);
    if (its_code != Code::kOk) return Status(its_code, "rank " + std::to_string(r) + ": " + all[r]);
  }
  return gathered;
}

Status agree(Rendezvous& rendezvous, const Status& mine) {
  return exchange_bytes(rendezvous, mine, "").status();
}

}  // namespace treering
