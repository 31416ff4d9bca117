// Joins the memories of all ranks: each learns where it can write for the others.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "core/log.hpp"
#include "core/rank_list.hpp"
#include "transports/cuda_ipc/links.hpp"
#include "transports/device_links.hpp"
#include "transports/exchange.hpp"

namespace treering {
namespace {

using namespace cuda_ipc;

constexpr int kMostTrialMs = 5000;  // of a link; a word takes microseconds

SlabLayout layout_for(int size, const DeviceLinkOptions& options) {
  SlabLayout layout;
  layout.size = size;
  layout.channels = options.channels;
  for (int p = 0; p < kNumDeviceProtocols; ++p) {
    layout.slot_bytes[p] = SlabLayout::whole_lines(options.slot_bytes[p]);
  }
  return layout;
}

Result<std::unique_ptr<DeviceLinks>> do_without(int rank, const DeviceLinkOptions& options,
                                                const Status& why) {
  if (options.strict) return why;
  TR_LOG_WARN(rank, "GPU memory is not used between ranks: %s", why.message().c_str());
  return std::unique_ptr<DeviceLinks>();
}

// What a rank has made before it knows where the others' is.
struct Made {
  Slab slab;
  CudaStream stream;
  Offer offer;
};

Result<Made> make(const SlabLayout& layout, Sharing sharing) {
  TR_ASSIGN_OR_RETURN(Slab slab, Slab::make(layout, sharing));
  TR_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::make());
  TR_ASSIGN_OR_RETURN(HandOver hand_over, HandOver::open());
  UniqueFd file;
  if (sharing == Sharing::kFile) {
    TR_ASSIGN_OR_RETURN(file, slab.file());
  }
  const SlabCard card{slab.address(), hand_over.doorbell()};
  return Made{std::move(slab), std::move(stream),
              Offer{card, std::move(hand_over), std::move(file)}};
}

// Pairs that do not reach each other go through the host, and those who care are told.
Status mend(CudaLinks& links, Rendezvous& rendezvous, const Findings& findings,
            const DeviceLinkOptions& options, int trial_ms) {
  std::vector<int> peers;  // of this rank, that are not reached
  std::string why;         // of the first of them
  std::string first_of_all;
  for (int a = 0; a < rendezvous.size(); ++a) {
    for (int b = a + 1; b < rendezvous.size(); ++b) {
      const std::string reason = why_not(findings, a, b);
      if (reason.empty()) continue;
      if (first_of_all.empty()) {
        first_of_all = "ranks " + std::to_string(a) + " and " + std::to_string(b) + ": " + reason;
      }
      if (a != links.rank() && b != links.rank()) continue;
      peers.push_back(a == links.rank() ? b : a);
      if (why.empty()) why = reason;
    }
  }
  if (first_of_all.empty()) return {};
  if (options.strict) return unsupported("GPUs do not reach each other: " + first_of_all);
  TR_RETURN_IF_ERROR(links.go_through_host(rendezvous, findings, options.timeout_ms, trial_ms));
  if (!peers.empty()) {
    TR_LOG_WARN(links.rank(), "links with %s lie in pinned host memory, which is slow: %s%s",
                rank_list(peers).c_str(), why.c_str(),
                peers.size() > 1 ? " (tr_comm_explain has the reason of each)" : "");
  }
  return {};
}

// Collective; the same error on all ranks, unless one is gone.
Status join(CudaLinks& links, Offer& offer, Rendezvous& rendezvous,
            const std::vector<SlabCard>& slabs, const SharingChoice& sharing,
            const DeviceLinkOptions& options) {
  const int trial_ms = std::min(kMostTrialMs, std::max(1, options.timeout_ms / 4));
  const Status reached = links.reach(offer, slabs, sharing, options.timeout_ms);
  TR_ASSIGN_OR_RETURN(const Findings findings, links.try_ways(rendezvous, reached, trial_ms));
  TR_RETURN_IF_ERROR(mend(links, rendezvous, findings, options, trial_ms));
  return agree(rendezvous, links.fill_table());
}

}  // namespace

Result<std::unique_ptr<DeviceLinks>> connect_device(Rendezvous& rendezvous,
                                                    const DeviceLinkOptions& options) {
  const int rank = rendezvous.rank();
  TR_ASSIGN_OR_RETURN(const std::vector<Card> cards,
                      exchange(rendezvous, Result<Card>(make_card())));
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if (cards[r].has_device) continue;
    const Status status =
        unsupported("rank " + std::to_string(r) + " has no device: " + cards[r].why_not);
    if (options.strict) return status;
    TR_LOG_INFO(rank, "host engine only: %s", status.message().c_str());
    return std::unique_ptr<DeviceLinks>();
  }
  if (rendezvous.size() > kMaxDeviceRanks) {
    return do_without(
        rank, options,
        unsupported(std::to_string(rendezvous.size()) + " ranks; kernels serve up to " +
                    std::to_string(kMaxDeviceRanks)));
  }

  const SlabLayout layout = layout_for(rendezvous.size(), options);
  const SharingChoice sharing = choose_sharing(cards);
  Result<Made> made = make(layout, sharing.sharing);
  const Result<std::vector<SlabCard>> slabs =
      exchange(rendezvous, made.ok() ? Result<SlabCard>(made.value().offer.card)
                                     : Result<SlabCard>(made.status()));
  if (!slabs.ok()) return do_without(rank, options, slabs.status());
  auto links = std::make_unique<CudaLinks>(rank, layout, cards, std::move(made.value().slab),
                                           std::move(made.value().stream));
  const Status joined =
      join(*links, made.value().offer, rendezvous, slabs.value(), sharing, options);
  if (!joined.ok()) {
    // Once more all of them: then it is agreed, and no rank is gone.
    TR_RETURN_IF_ERROR(rendezvous.all_gather("").status());
    links->give_up();
    return do_without(rank, options, joined);
  }

  // All ranks know of a link that is not good for LL128, or none does; one that cannot be asked is
  // not.
  const Result<std::string> torn = links->torn_lines();
  TR_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      rendezvous.all_gather(torn.ok() ? torn.value() : torn.status().message()));
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    links->do_without_ll128("rank " + std::to_string(r) + ": " + all[r]);
    break;
  }
  return std::unique_ptr<DeviceLinks>(std::move(links));
}

}  // namespace treering
