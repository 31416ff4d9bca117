// What ranks tell each other while their links are made, and what follows from it: the same on all.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "core/device_link.hpp"
#include "core/status.hpp"
#include "transports/cuda_ipc/pinned.hpp"
#include "transports/cuda_ipc/slab.hpp"
#include "transports/hand_over.hpp"
#include "transports/process.hpp"

namespace treering::cuda_ipc {

// First: what a rank has. Plain bytes.
struct Card {
  bool has_device = false;
  int device = -1;  // as its process numbers it
  Token process{};
  char bus_id[16] = {};
  char why_not[96] = {};      // it has no device
  char why_no_file[96] = {};  // its memory cannot be shared as files
};

// Of the current device; a card without one says why.
Card make_card();
Card card_without_device(const std::string& why);
// Files, if all GPUs can; else handles, and why.
struct SharingChoice {
  Sharing sharing = Sharing::kFile;
  std::string why_no_files;
};
SharingChoice choose_sharing(const std::vector<Card>& cards);

// Then: where its memory lies. Plain bytes.
struct SlabCard {
  SlabAddress slab;
  Doorbell doorbell;
};
struct PinnedCard {
  PinnedAddress memory;
  Doorbell doorbell;
};

// What a rank found of its way to a peer.
struct Finding {
  enum class State : char {
    kWorks = 'w',
    kFails = 'f',
    kHangs = 'h',  // what was written may still arrive
  };
  State state = State::kWorks;
  std::string why;  // it does not work
  bool works() const { return state == State::kWorks; }
};

// [rank][peer]
using Findings = std::vector<std::vector<Finding>>;

// All ranks' findings. With an error of any rank, that one on all.
Result<Findings> exchange_findings(Rendezvous& rendezvous, const Status& status,
                                   const std::vector<Finding>& mine);
// Do both ends find that it works? Else why not.
std::string why_not(const Findings& findings, int a, int b);

}  // namespace treering::cuda_ipc
