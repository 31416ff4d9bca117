#include "transports/cuda_ipc/links.hpp"

#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "core/deadline.hpp"
#include "transports/cuda_ipc/windows.hpp"

namespace treering::cuda_ipc {
namespace {

constexpr int kLeaveMs = 1000;  // until a store into a peer's memory is taken to hang

}  // namespace

CudaLinks::CudaLinks(int rank, const SlabLayout& layout, std::vector<Card> cards, Slab slab,
                     CudaStream stream)
    : rank_(rank),
      layout_(layout),
      cards_(std::move(cards)),
      slab_(std::move(slab)),
      stream_(std::move(stream)),
      ways_(cards_.size()),
      findings_(cards_.size()) {
  std::vector<int> all(cards_.size());
  std::iota(all.begin(), all.end(), 0);
  slab_.set_writers(std::move(all));
}

bool CudaLinks::is_same_place(int peer) const {
  const Card& card = cards_[static_cast<std::size_t>(peer)];
  return card.process == mine().process && card.device == mine().device;
}

// All but files, which come over the hand-over.
Result<Mapping> CudaLinks::map(int peer, const SlabCard& theirs, Sharing sharing) const {
  const Card& card = cards_[static_cast<std::size_t>(peer)];
  if (is_same_place(peer)) return Mapping(theirs.slab.base);
  if (card.process != mine().process) return Mapping::open(theirs.slab.handle);
  int can = 0;
  TR_RETURN_IF_ERROR(cuda_status(cudaDeviceCanAccessPeer(&can, mine().device, card.device),
                                 "cudaDeviceCanAccessPeer"));
  if (can == 0) return unsupported("there is no peer access between the two");
  if (sharing == Sharing::kFile) {
    TR_ASSIGN_OR_RETURN(VmmMemory memory,
                        VmmMemory::of_handle(theirs.slab.memory, theirs.slab.bytes, mine().device));
    return Mapping(std::move(memory));
  }
  const cudaError_t error = cudaDeviceEnablePeerAccess(card.device, 0);
  if (error != cudaErrorPeerAccessAlreadyEnabled) {
    TR_RETURN_IF_ERROR(cuda_status(error, "cudaDeviceEnablePeerAccess"));
  }
  (void)cudaGetLastError();
  return Mapping(theirs.slab.base);
}

void CudaLinks::enter(int peer, Result<Mapping> mapping, const SharingChoice& sharing) {
  const Card& card = cards_[static_cast<std::size_t>(peer)];
  const std::string gpu = std::string("GPU ") + card.bus_id;
  if (!mapping.ok()) {
    finding(peer) = {Finding::State::kFails, std::string("GPU ") + mine().bus_id + " of rank " +
                                                 std::to_string(rank_) + " cannot map memory of " +
                                                 gpu + " of rank " + std::to_string(peer) + ": " +
                                                 mapping.status().message()};
    return;
  }
  Way& way = ways_[static_cast<std::size_t>(peer)];
  way.mapping = std::move(mapping).value();
  way.mine = slab_.base();
  way.theirs = way.mapping.base();
  way.my_layout = way.their_layout = layout_;
  way.me = rank_;
  way.them = peer;
  if (peer == rank_) {
    way.how = "itself";
  } else if (is_same_place(peer)) {
    way.how = "the same device and process";
  } else if (card.process == mine().process) {
    way.how = "peer memory of device " + std::to_string(card.device) + ", same process";
  } else if (sharing.sharing == Sharing::kFile) {
    way.how = "memory of " + gpu + ", mapped from a file descriptor (cuMem)";
  } else {
    way.how = "memory of " + gpu + ", CUDA IPC (" + sharing.why_no_files + ")";
  }
}

Status CudaLinks::reach(Offer& offer, const std::vector<SlabCard>& slabs,
                        const SharingChoice& sharing, int timeout_ms) {
  std::vector<Neighbour> neighbours;
  for (int r = 0; r < layout_.size; ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (sharing.sharing == Sharing::kFile && cards_[i].process != mine().process) {
      neighbours.push_back({r, slabs[i].doorbell, false});
    } else {
      enter(r, map(r, slabs[i], sharing.sharing), sharing);
    }
  }
  if (neighbours.empty()) return {};
  const auto take = [&](std::size_t i, UniqueFd file) -> Status {
    const int peer = neighbours[i].rank;
    Result<VmmMemory> memory = VmmMemory::of_file(
        file.get(), slabs[static_cast<std::size_t>(peer)].slab.bytes, mine().device);
    enter(peer,
          memory.ok() ? Result<Mapping>(Mapping(std::move(memory).value()))
                      : Result<Mapping>(memory.status()),
          sharing);
    return {};  // that pair's affair
  };
  return offer.hand_over.run(rank_, offer.file.get(), neighbours, take, timeout_ms).status();
}

Status CudaLinks::fill_table() {
  table_.channels = layout_.channels;
  table_.size = layout_.size;
  table_.ends = reinterpret_cast<DeviceLinkEnds*>(slab_.base() + layout_.ends());
  std::vector<DeviceLinkEnds> ends(static_cast<std::size_t>(kNumDeviceProtocols * layout_.channels *
                                                            kNumDeviceLinkClasses * layout_.size));
  for (int p = 0; p < kNumDeviceProtocols; ++p) {
    const auto protocol = static_cast<DeviceProtocol>(p);
    table_.slot_bytes[p] = layout_.slot_bytes[p];
    for (int channel = 0; channel < layout_.channels; ++channel) {
      for (int c = 0; c < device_link_classes(protocol); ++c) {
        const auto cls = static_cast<DeviceLinkClass>(c);
        for (int r = 0; r < layout_.size; ++r) {
          const Way& w = way(r);
          // A link lies where its reader is; the head lies where its writer is.
          const SlabLayout::End to = w.their_layout.end(protocol, channel, cls, w.me);
          const SlabLayout::End from = w.my_layout.end(protocol, channel, cls, w.them);
          DeviceLinkEnds& end = ends[table_.index(protocol, channel, cls, r)];
          end.tx = {w.theirs + to.slots, reinterpret_cast<DeviceTail*>(w.theirs + to.tails),
                    reinterpret_cast<const std::uint64_t*>(w.mine + from.head), 0, 0};
          end.rx = {w.mine + from.slots, reinterpret_cast<const DeviceTail*>(w.mine + from.tails),
                    reinterpret_cast<std::uint64_t*>(w.theirs + to.head), 0};
        }
      }
    }
  }
  TR_RETURN_IF_ERROR(stream_.copy(table_.ends, ends.data(), ends.size() * sizeof ends[0]));
  const std::vector<DeviceJunction> junctions(static_cast<std::size_t>(layout_.channels + 1));
  table_.junctions = reinterpret_cast<DeviceJunction*>(slab_.base() + layout_.junctions());
  return stream_.copy(table_.junctions, junctions.data(), junctions.size() * sizeof junctions[0]);
}

// Do lines of 128 bytes that this rank's kernels store arrive whole, everywhere? (LL128.) In the
// memory of its own GPU they do, and over NVLink, from sm_70 on. CUDA does not say what a link is;
// but of those between GPUs, NVLink is the one that does atomics, and PCIe is not. The host's
// memory is behind PCIe.
Result<std::string> CudaLinks::torn_lines() const {
  int major = 0;
  TR_RETURN_IF_ERROR(
      cuda_status(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device()),
                  "cudaDeviceGetAttribute"));
  if (major < 7) return std::string("GPU ") + mine().bus_id + " is older than sm_70";
  for (int r = 0; r < layout_.size; ++r) {
    const Card& card = cards_[static_cast<std::size_t>(r)];
    if (way(r).is_pinned) {
      return "links with rank " + std::to_string(r) +
             " lie in pinned host memory, where lines of 128 bytes may be torn";
    }
    if (std::strcmp(card.bus_id, mine().bus_id) == 0) continue;
    int theirs = card.device;  // as that process numbers it
    if (card.process != mine().process) {
      TR_RETURN_IF_ERROR(
          cuda_status(cudaDeviceGetByPCIBusId(&theirs, card.bus_id),
                      std::string("finding GPU ") + card.bus_id + " of rank " + std::to_string(r)));
    }
    int atomics = 0;
    TR_RETURN_IF_ERROR(cuda_status(
        cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device(), theirs),
        "cudaDeviceGetP2PAttribute"));
    if (atomics == 0) {
      return "the link to GPU " + std::string(card.bus_id) + " of rank " + std::to_string(r) +
             " is not NVLink, and may tear lines of 128 bytes";
    }
  }
  return std::string();
}

void CudaLinks::give_up() {
  is_given_up_ = true;
  slab_.set_writers(stuck_);
  if (pinned_ && !is_host_stuck_) pinned_->set_writers({});
}

// What this rank's kernels had to store, they have stored: its operations are done.
void CudaLinks::leave() {
  if (is_given_up_) return;
  for (const Way& w : ways_) {
    if (w.theirs != nullptr) (void)stream_.start_fill(w.theirs + SlabLayout::gone(w.me), 1, 1);
  }
  const Deadline deadline = Deadline::after_ms(kLeaveMs);
  for (;;) {
    const Result<bool> done = stream_.is_done();
    if (done.ok() && done.value()) return;
    if (!done.ok() || deadline.expired()) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  for (Way& w : ways_) w.mapping.leak();  // the stores may still be on their way
}

// A window is memory of a GPU that all others reach.
Result<WindowMap> CudaLinks::map_windows(void* ptr, std::size_t bytes,
                                         Rendezvous& rendezvous) const {
  Status reached;
  for (int r = 0; r < layout_.size && reached.ok(); ++r) {
    if (!way(r).is_pinned) continue;
    reached =
        unsupported("there are no windows where GPUs do not reach each other: the link to rank " +
                    std::to_string(r) + " is " + way(r).how);
  }
  return cuda_ipc::map_windows(device(), ptr, bytes, reached, rendezvous);
}

}  // namespace treering::cuda_ipc
