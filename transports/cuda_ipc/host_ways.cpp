// Pairs of ranks whose GPUs do not reach each other meet in pinned memory of the host.
#include <algorithm>
#include <numeric>
#include <utility>

#include "transports/cuda_ipc/links.hpp"
#include "transports/exchange.hpp"

namespace treering::cuda_ipc {
namespace {

struct HostOffer {
  HandOver hand_over;
  PinnedCard card;
};

// The peers that a rank meets at the host.
std::vector<int> host_peers(const Findings& findings, int rank) {
  std::vector<int> peers;
  for (int r = 0; r < static_cast<int>(findings.size()); ++r) {
    if (!why_not(findings, rank, r).empty()) peers.push_back(r);
  }
  return peers;
}

int place_of(const std::vector<int>& peers, int rank) {
  return static_cast<int>(std::find(peers.begin(), peers.end(), rank) - peers.begin());
}

}  // namespace

Status CudaLinks::enter_host(int peer, const std::shared_ptr<Segment>& segment,
                             const Findings& findings) {
  const std::vector<int> my_peers = host_peers(findings, rank_);
  const std::vector<int> their_peers = host_peers(findings, peer);
  Way& w = ways_[static_cast<std::size_t>(peer)];
  w = Way{};
  TR_ASSIGN_OR_RETURN(w.theirs, pin(segment));
  w.mine = pinned_->on_device();
  w.my_layout = w.their_layout = layout_;
  w.my_layout.size = static_cast<int>(my_peers.size());
  w.their_layout.size = static_cast<int>(their_peers.size());
  w.me = place_of(their_peers, rank_);
  w.them = place_of(my_peers, peer);
  w.is_pinned = true;
  w.how = "pinned host memory, because " + why_not(findings, rank_, peer);
  finding(peer) = {};
  return {};
}

Status CudaLinks::meet_at_host(HandOver& hand_over, const std::vector<PinnedCard>& cards,
                               const Findings& findings, int timeout_ms) {
  std::vector<Neighbour> neighbours;
  for (const int r : host_peers(findings, rank_)) {
    const auto i = static_cast<std::size_t>(r);
    if (cards_[i].process != mine().process) {
      neighbours.push_back({r, cards[i].doorbell, false});
      continue;
    }
    const std::shared_ptr<Segment> segment = Segment::find(cards[i].memory.key);
    if (!segment) {
      return remote_error("rank " + std::to_string(r) + ", a thread of this process, gave up");
    }
    TR_RETURN_IF_ERROR(enter_host(r, segment, findings));
  }
  if (neighbours.empty()) return {};
  const auto take = [&](std::size_t i, UniqueFd file) -> Status {
    const int r = neighbours[i].rank;
    TR_ASSIGN_OR_RETURN(const std::shared_ptr<Segment> segment,
                        Segment::map(file.get(), cards[static_cast<std::size_t>(r)].memory.bytes));
    return enter_host(r, segment, findings);
  };
  return hand_over.run(rank_, pinned_->file(), neighbours, take, timeout_ms).status();
}

Status CudaLinks::go_through_host(Rendezvous& rendezvous, const Findings& findings, int timeout_ms,
                                  int trial_ms) {
  std::vector<int> peers = host_peers(findings, rank_);
  Result<HostOffer> offer = [&]() -> Result<HostOffer> {
    TR_ASSIGN_OR_RETURN(HandOver hand_over, HandOver::open());
    PinnedCard card{{}, hand_over.doorbell()};
    if (!peers.empty()) {
      SlabLayout layout = layout_;
      layout.size = static_cast<int>(peers.size());
      TR_ASSIGN_OR_RETURN(pinned_, PinnedSlab::make(layout.ends()));
      std::vector<int> places(peers.size());
      std::iota(places.begin(), places.end(), 0);
      pinned_->set_writers(std::move(places));
      card.memory = pinned_->address();
    }
    return HostOffer{std::move(hand_over), card};
  }();
  TR_ASSIGN_OR_RETURN(const std::vector<PinnedCard> cards,
                      exchange(rendezvous, offer.ok() ? Result<PinnedCard>(offer.value().card)
                                                      : Result<PinnedCard>(offer.status())));
  const Status met = meet_at_host(offer.value().hand_over, cards, findings, timeout_ms);
  if (!met.ok()) peers.clear();
  TR_ASSIGN_OR_RETURN(const Findings found, try_with_words(rendezvous, met, peers, trial_ms));
  is_host_stuck_ = std::any_of(found.begin(), found.end(), [&](const auto& theirs) {
    return theirs[static_cast<std::size_t>(rank_)].state == Finding::State::kHangs;
  });
  for (int a = 0; a < layout_.size; ++a) {
    for (int b = a + 1; b < layout_.size; ++b) {
      const std::string why = why_not(found, a, b);
      if (!why.empty()) return unsupported("pinned host memory does not carry data either: " + why);
    }
  }
  return {};
}

}  // namespace treering::cuda_ipc
