#include "transports/cuda_ipc/cards.hpp"

#include <algorithm>
#include <cstdio>

#include "core/cuda_status.hpp"
#include "transports/cuda_ipc/vmm.hpp"
#include "transports/exchange.hpp"

namespace treering::cuda_ipc {

Card card_without_device(const std::string& why) {
  Card card;
  std::snprintf(card.why_not, sizeof card.why_not, "%s", why.c_str());
  return card;
}

// The count stays unwritten where there is no driver, so it starts at 0.
Card make_card() {
  int count = 0;
  Card card;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count < 1) error = cudaErrorNoDevice;
  if (error == cudaSuccess) error = cudaGetDevice(&card.device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetPCIBusId(card.bus_id, sizeof card.bus_id, card.device);
  }
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return card_without_device(std::string("no GPU or no driver: ") + cudaGetErrorString(error));
  }
  const Result<Token> process = process_token();
  if (!process.ok()) return card_without_device(process.status().message());
  card.has_device = true;
  card.process = process.value();
  std::snprintf(card.why_no_file, sizeof card.why_no_file, "%s",
                VmmMemory::why_not(card.device).c_str());
  return card;
}

SharingChoice choose_sharing(const std::vector<Card>& cards) {
  for (const Card& card : cards) {
    if (card.why_no_file[0] == '\0') continue;
    return {Sharing::kHandle, std::string("GPU ") + card.bus_id + ": " + card.why_no_file};
  }
  return {};
}

Result<Findings> exchange_findings(Rendezvous& rendezvous, const Status& status,
                                   const std::vector<Finding>& mine) {
  std::string bytes;
  for (const Finding& finding : mine) {
    bytes += static_cast<char>(finding.state) + finding.why;
    bytes += '\0';
  }
  TR_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      exchange_bytes(rendezvous, status, bytes));
  Findings findings(all.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    for (std::size_t at = 0; at < all[r].size();) {
      const std::size_t end = all[r].find('\0', at);
      if (end == std::string::npos || end == at) return internal_error("findings are garbled");
      findings[r].push_back(
          {static_cast<Finding::State>(all[r][at]), all[r].substr(at + 1, end - at - 1)});
      at = end + 1;
    }
    if (findings[r].size() != all.size()) return internal_error("findings are not of all peers");
  }
  return findings;
}

std::string why_not(const Findings& findings, int a, int b) {
  const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
  const auto [first, second] = std::minmax(i, j);
  return !findings[first][second].works() ? findings[first][second].why
                                          : findings[second][first].why;
}

}  // namespace treering::cuda_ipc
