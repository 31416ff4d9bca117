// Rounds of the rendezvous in which a rank may say "I failed" instead of its part, so that all
// ranks stop together and tell of the same cause.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "core/status.hpp"

namespace treering {

class Rendezvous;

// Every rank's bytes, by rank; or, the same on all ranks, the error of the lowest rank that has
// one. With an error of this rank, it goes round in place of the bytes.
Result<std::vector<std::string>> exchange_bytes(Rendezvous& rendezvous, const Status& status,
                                                const std::string& bytes);

// A plain value of each rank. Ranks that run another build are found by its size.
template <class T>
Result<std::vector<T>> exchange(Rendezvous& rendezvous, const Result<T>& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::string bytes;
  if (mine.ok()) bytes.assign(reinterpret_cast<const char*>(&mine.value()), sizeof(T));
  TR_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      exchange_bytes(rendezvous, mine.status(), bytes));
  std::vector<T> values(all.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].size() != sizeof(T))
      return unsupported("rank " + std::to_string(r) + " runs another build of Treering");
    std::memcpy(&values[r], all[r].data(), sizeof(T));
  }
  return values;
}

// Nobody leaves before all have come, and all leave with success or none.
Status agree(Rendezvous& rendezvous, const Status& mine);

}  // namespace treering
