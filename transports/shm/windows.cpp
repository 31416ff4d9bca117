// Windows: every rank's tr_mem_alloc memory in every rank's address space.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "transports/exchange.hpp"
#include "transports/hand_over.hpp"
#include "transports/shm/block.hpp"
#include "transports/shm/shm_transport.hpp"

namespace treering::shm {
namespace {

// What a rank tells the others about its memory.
struct WindowCard {
  SegmentKey block;
  std::size_t block_bytes = 0;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  Doorbell doorbell;
};

struct OwnWindow {
  BlockHold hold;
  HandOver hand_over;
  WindowCard card;
};

// What WindowMap::mapping keeps: the peers' blocks stay mapped, the own one cannot be freed.
struct Mapping {
  BlockHold hold;
  std::vector<std::shared_ptr<Segment>> segments;
};

Result<OwnWindow> prepare_window(void* ptr, std::size_t bytes) {
  TR_ASSIGN_OR_RETURN(BlockHold hold, BlockHold::of(ptr, bytes));
  TR_ASSIGN_OR_RETURN(HandOver hand_over, HandOver::open());
  const Segment& block = *hold.segment();
  const WindowCard card{block.key(), block.bytes(), hold.offset(), bytes, hand_over.doorbell()};
  return OwnWindow{std::move(hold), std::move(hand_over), card};
}

Result<WindowMap> meet_windows(int rank, OwnWindow own, const std::vector<WindowCard>& cards,
                               const std::vector<PeerInfo>& peers, int timeout_ms,
                               const Rendezvous& rendezvous) {
  std::vector<std::shared_ptr<Segment>> segments(cards.size());
  std::vector<Neighbour> neighbours;
  for (std::size_t r = 0; r < cards.size(); ++r) {
    const int peer = static_cast<int>(r);
    if (!peers[r].same_process) {
      neighbours.push_back({peer, cards[r].doorbell, false});
      continue;
    }
    segments[r] = Segment::find(cards[r].block);
    if (!segments[r])
      return remote_error("rank " + std::to_string(r) + ", a thread of this process, gave up");
  }
  const auto take = [&](std::size_t i, UniqueFd file) -> Status {
    const auto r = static_cast<std::size_t>(neighbours[i].rank);
    TR_ASSIGN_OR_RETURN(segments[r], Segment::map(file.get(), cards[r].block_bytes));
    return {};
  };
  TR_RETURN_IF_ERROR(own.hand_over
                         .run(rank, own.hold.memory_file(), neighbours, take, timeout_ms,
                              [&rendezvous] { return rendezvous.interrupted(); })
                         .status());

  WindowMap map;
  for (std::size_t r = 0; r < cards.size(); ++r) {
    map.base.push_back(segments[r]->base() + cards[r].offset);
    map.bytes.push_back(cards[r].bytes);
    // The pages exist; this puts them into this process's page tables, so that no call faults.
    TR_RETURN_IF_ERROR(make_resident(map.base[r], map.bytes[r])
                           .with_context("the window of rank " + std::to_string(r)));
  }
  map.mapping = std::make_shared<Mapping>(Mapping{std::move(own.hold), std::move(segments)});
  return map;
}

}  // namespace

Result<WindowMap> ShmTransport::map_windows(void* ptr, std::size_t bytes, Rendezvous& rendezvous) {
  Result<OwnWindow> own = prepare_window(ptr, bytes);
  TR_ASSIGN_OR_RETURN(const std::vector<WindowCard> cards,
                      exchange(rendezvous, own.ok() ? Result<WindowCard>(own.value().card)
                                                    : Result<WindowCard>(own.status())));
  Result<WindowMap> map =
      meet_windows(rank_, std::move(own).value(), cards, peers_, timeout_ms_, rendezvous);
  TR_RETURN_IF_ERROR(agree(rendezvous, map.status()));
  return map;
}

}  // namespace treering::shm
