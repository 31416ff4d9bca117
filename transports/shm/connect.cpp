// Builds a shared-memory transport: create the own segment, tell the others, hand it over to those
// of this host, agree.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "transports/exchange.hpp"
#include "transports/find_hosts.hpp"
#include "transports/hand_over.hpp"
#include "transports/registry.hpp"
#include "transports/shm/shm_transport.hpp"

namespace treering {
namespace shm {
namespace {

constexpr std::size_t kMaxLinkBytes = std::size_t{1} << 30;

// What a rank tells the others before the hand-over.
struct Card {
  std::uint64_t pid_namespace = 0;
  std::uint32_t pidfds_work = 0;
  std::int32_t pid = 0;  // in its own pid namespace
  Token process{};
  SegmentKey segment;
  Doorbell doorbell;
  std::uint64_t fifo_lines = kFifoLines;
  LinkSizes sizes;
};

// Everything of a rank that exists before it knows anybody.
struct Own {
  UniqueFd memory_file;
  std::shared_ptr<Segment> segment;
  HandOver hand_over;
  Card card;
};

Result<Own> prepare(const Layout& layout, const TransportOptions& options) {
  for (const std::size_t bytes : {options.link_bytes, options.cast_bytes, options.sendrecv_bytes})
    if (bytes == 0 || bytes > kMaxLinkBytes)
      return invalid_argument("a link of " + std::to_string(bytes) + " bytes: 1 to " +
                              std::to_string(kMaxLinkBytes) + " is possible");
  Card card;
  card.pid_namespace = namespace_number("pid");
  card.pidfds_work = pidfds_work() ? 1 : 0;
  card.pid = ::getpid();
  TR_ASSIGN_OR_RETURN(card.process, process_token());
  card.sizes = layout.sizes();

  TR_ASSIGN_OR_RETURN(UniqueFd memory_file, create_memory_file(layout.bytes()));
  TR_ASSIGN_OR_RETURN(std::shared_ptr<Segment> segment,
                      Segment::map(memory_file.get(), layout.bytes()));
  TR_RETURN_IF_ERROR(make_resident(segment->base(), sizeof(Board)));
  // Before anybody else has the segment, so no order is needed.
  Board& board = *reinterpret_cast<Board*>(segment->base());
  board.pid.store(card.pid, std::memory_order_relaxed);
  card.segment = segment->key();
  TR_ASSIGN_OR_RETURN(HandOver hand_over, HandOver::open());
  card.doorbell = hand_over.doorbell();
  return Own{std::move(memory_file), std::move(segment), std::move(hand_over), card};
}

// The same answer on all ranks: it depends on the cards only.
Status check_cards(const std::vector<Card>& cards) {
  const Card& first = cards[0];
  for (std::size_t r = 1; r < cards.size(); ++r) {
    const Card& card = cards[r];
    if (card.fifo_lines != first.fifo_lines)
      return unsupported("rank " + std::to_string(r) +
                         " runs another build of Treering than rank 0");
    for (const auto kind : {LinkId::Kind::kPair, LinkId::Kind::kCast, LinkId::Kind::kSendRecv})
      if (card.sizes.of(kind) != first.sizes.of(kind))
        return invalid_argument("rank " + std::to_string(r) + " asks for links of " +
                                std::to_string(card.sizes.of(kind)) + " bytes, rank 0 for " +
                                std::to_string(first.sizes.of(kind)) +
                                ": the sizes (TR_LINK_BYTES, TR_CAST_BYTES) must be the same on "
                                "all ranks");
  }
  return {};
}

// Maps the segment of every rank of this host.
Result<std::vector<PeerInfo>> meet(const Rendezvous& rendezvous, Own& own,
                                   const std::vector<Card>& cards,
                                   const std::vector<int>& host_of_rank,
                                   std::vector<UniqueFd>& connections, int timeout_ms) {
  const int rank = rendezvous.rank();
  std::vector<PeerInfo> peers(cards.size());
  std::vector<Neighbour> neighbours;
  for (std::size_t r = 0; r < cards.size(); ++r) {
    const Card& card = cards[r];
    if (host_of_rank[r] != host_of_rank[static_cast<std::size_t>(rank)]) continue;
    peers[r].pid = card.pid;
    peers[r].same_process = card.process == own.card.process;
    if (!peers[r].same_process) {
      // Each end decides for itself from the two cards, and both decide alike.
      peers[r].keep_connection = card.pid_namespace != own.card.pid_namespace ||
                                 card.pid_namespace == 0 || card.pidfds_work == 0 ||
                                 own.card.pidfds_work == 0;
      neighbours.push_back({static_cast<int>(r), card.doorbell, peers[r].keep_connection});
      continue;
    }
    peers[r].segment = Segment::find(card.segment);
    if (!peers[r].segment)
      return remote_error("rank " + std::to_string(r) + ", a thread of this process, gave up");
  }
  const auto take = [&](std::size_t i, UniqueFd file) -> Status {
    const auto r = static_cast<std::size_t>(neighbours[i].rank);
    TR_ASSIGN_OR_RETURN(peers[r].segment, Segment::map(file.get(), own.segment->bytes()));
    return {};
  };
  TR_ASSIGN_OR_RETURN(std::vector<Received> received,
                      own.hand_over.run(rank, own.memory_file.get(), neighbours, take, timeout_ms,
                                        [&] { return rendezvous.interrupted(); }));
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    const auto r = static_cast<std::size_t>(neighbours[i].rank);
    peers[r].pid = received[i].pid;
    peers[r].own_end = std::move(received[i].own_end);
    connections[r] = std::move(received[i].connection);
  }
  return peers;
}

Result<Liveness> watch(int rank, const std::vector<PeerInfo>& peers,
                       std::vector<UniqueFd>& connections) {
  std::vector<Board*> boards;
  for (const PeerInfo& peer : peers)
    boards.push_back(peer.segment ? reinterpret_cast<Board*>(peer.segment->base()) : nullptr);
  Liveness liveness(rank, std::move(boards));
  for (std::size_t r = 0; r < peers.size(); ++r) {
    if (peers[r].same_process || !peers[r].segment) continue;
    const int peer = static_cast<int>(r);
    if (peers[r].keep_connection)
      liveness.watch_connection(peer, std::move(connections[r]), peers[r].pid);
    else
      TR_RETURN_IF_ERROR(
          liveness.watch_process(peer, peers[r].pid).with_context("rank " + std::to_string(r)));
  }
  return liveness;
}

Result<std::unique_ptr<Transport>> finish(const Rendezvous& rendezvous, const Layout& layout,
                                          Own& own, const std::vector<Card>& cards,
                                          const std::vector<int>& host_of_rank, int timeout_ms) {
  const int rank = rendezvous.rank();
  std::vector<UniqueFd> connections(cards.size());
  TR_ASSIGN_OR_RETURN(std::vector<PeerInfo> peers,
                      meet(rendezvous, own, cards, host_of_rank, connections, timeout_ms));
  TR_ASSIGN_OR_RETURN(Liveness liveness, watch(rank, peers, connections));
  peers[static_cast<std::size_t>(rank)].memory_file = std::move(own.memory_file);
  return std::unique_ptr<Transport>(std::make_unique<ShmTransport>(
      rank, layout, std::move(peers), std::move(liveness), host_of_rank, timeout_ms));
}

}  // namespace
}  // namespace shm

Result<std::unique_ptr<Transport>> connect_shm(Rendezvous& rendezvous,
                                               const TransportOptions& options,
                                               const std::vector<int>& host_of_rank) {
  using namespace shm;
  const Layout layout(rendezvous.size(),
                      {options.link_bytes, options.cast_bytes, options.sendrecv_bytes});
  Result<Own> own = prepare(layout, options);
  TR_ASSIGN_OR_RETURN(
      const std::vector<Card> cards,
      exchange(rendezvous, own.ok() ? Result<Card>(own.value().card) : Result<Card>(own.status())));
  TR_RETURN_IF_ERROR(check_cards(cards));

  Result<std::unique_ptr<Transport>> transport =
      finish(rendezvous, layout, own.value(), cards, host_of_rank, options.timeout_ms);
  // After this everybody has mapped everything, and was alive when its process was found.
  TR_RETURN_IF_ERROR(agree(rendezvous, transport.status()));
  return transport;
}

}  // namespace treering
