// CudaLinks: the links of one rank, made in steps that all ranks take together (connect.cpp).
//
// The ranks of a pair write into each other's slab where they can: the slab of a GPU's memory, or,
// where a GPU does not reach the other's, one of pinned host memory. What is written is the same.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cuda_stream.hpp"
#include "transports/cuda_ipc/cards.hpp"
#include "transports/cuda_ipc/mapping.hpp"
#include "transports/cuda_ipc/pinned.hpp"
#include "transports/cuda_ipc/slab.hpp"
#include "transports/device_links.hpp"

namespace treering::cuda_ipc {

// What this rank gives the others: its slab's descriptor goes over the hand-over.
struct Offer {
  SlabCard card;
  HandOver hand_over;
  UniqueFd file;  // Sharing::kFile
};

// Where this rank and a peer write for each other.
struct Way {
  std::byte* mine = nullptr;    // the slab that the peer writes into
  std::byte* theirs = nullptr;  // the one that this rank writes into
  SlabLayout my_layout, their_layout;
  int me = 0;    // this rank's place in theirs
  int them = 0;  // the peer's place in mine
  bool is_pinned = false;
  std::string how;
  Mapping mapping;  // keeps theirs
};

class CudaLinks final : public DeviceLinks {
 public:
  CudaLinks(int rank, const SlabLayout& layout, std::vector<Card> cards, Slab slab,
            CudaStream stream);
  ~CudaLinks() override { leave(); }

  const DeviceLinkTable& table() const override { return table_; }
  int rank() const override { return rank_; }
  int device() const override { return mine().device; }
  std::string describe(int peer) const override { return way(peer).how; }
  std::size_t device_bytes() const override { return slab_.bytes(); }
  const std::string& why_no_ll128() const override { return why_no_ll128_; }
  std::uint64_t* stream_words(int owner) const override {
    if (owner != rank_ && way(owner).is_pinned) return nullptr;
    std::byte* const slab = owner == rank_ ? slab_.base() : way(owner).theirs;
    return reinterpret_cast<std::uint64_t*>(slab + layout_.stream_words());
  }
  Result<WindowMap> map_windows(void* ptr, std::size_t bytes,
                                Rendezvous& rendezvous) const override;

  // Step 1: the ways into the peers' GPUs, as far as there are any.
  Status reach(Offer& offer, const std::vector<SlabCard>& slabs, const SharingChoice& sharing,
               int timeout_ms);
  // Step 2: do they carry data, and soon? Collective, `status` is that of the step before.
  Result<Findings> try_ways(Rendezvous& rendezvous, const Status& status, int trial_ms);
  // Step 3, if some do not: these pairs go through the host. Collective.
  Status go_through_host(Rendezvous& rendezvous, const Findings& findings, int timeout_ms,
                         int trial_ms);
  // Step 4: tells kernels.
  Status fill_table();
  // What may tear lines of 128 bytes (LL128); empty: nothing.
  Result<std::string> torn_lines() const;
  void do_without_ll128(const std::string& why) { why_no_ll128_ = why; }
  // All ranks know that the links are not made: nobody writes to them any more.
  void give_up();

 private:
  const Card& mine() const { return cards_[static_cast<std::size_t>(rank_)]; }
  const Way& way(int peer) const { return ways_[static_cast<std::size_t>(peer)]; }
  Finding& finding(int peer) { return findings_[static_cast<std::size_t>(peer)]; }
  // Within a GPU and a process nothing can be in the way.
  bool is_same_place(int peer) const;
  Result<Mapping> map(int peer, const SlabCard& theirs, Sharing sharing) const;
  void enter(int peer, Result<Mapping> mapping, const SharingChoice& sharing);
  // Each carries a word, both ways; what comes of it is a finding.
  Result<Findings> try_with_words(Rendezvous& rendezvous, const Status& status,
                                  const std::vector<int>& peers, int trial_ms);
  Status send_words(const std::vector<int>& peers, int trial_ms);
  Status check_words(const std::vector<int>& peers, int trial_ms);
  // Both ways between this rank and a peer are in pinned memory: theirs in `segment`.
  Status enter_host(int peer, const std::shared_ptr<Segment>& segment, const Findings& findings);
  Status meet_at_host(HandOver& hand_over, const std::vector<PinnedCard>& cards,
                      const Findings& findings, int timeout_ms);
  // Who may still write into this rank's slab.
  void settle_writers(const Findings& findings);
  void leave();

  int rank_;
  SlabLayout layout_;
  std::vector<Card> cards_;
  Slab slab_;
  CudaStream stream_;
  std::optional<PinnedSlab> pinned_;
  std::vector<Way> ways_;          // by peer
  std::vector<Finding> findings_;  // by peer
  std::vector<int> stuck_;         // whose copies into this rank's slab hang
  bool is_host_stuck_ = false;     // one into its pinned slab does
  DeviceLinkTable table_;
  std::string why_no_ll128_;
  bool is_given_up_ = false;
};

}  // namespace treering::cuda_ipc
