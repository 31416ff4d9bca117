// Joins the slabs of all ranks: each learns where it can write into the others'.
#include <cstring>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "core/cuda_stream.hpp"
#include "core/log.hpp"
#include "transports/cuda_ipc/slab.hpp"
#include "transports/cuda_ipc/windows.hpp"
#include "transports/device_links.hpp"

namespace treering {
namespace {

using cuda_ipc::Slab;
using cuda_ipc::SlabLayout;

// What a rank tells the others; bytes.
struct Card {
  bool has_device = false;
  int device = -1;  // as its process numbers it
  pid_t pid = 0;
  char bus_id[16] = {};
  char why_not[96] = {};
  std::byte* base = nullptr;
  cudaIpcMemHandle_t handle = {};
};

struct Peer {
  std::byte* base = nullptr;  // of its slab, in this process's addresses
  bool is_opened = false;     // by cudaIpcOpenMemHandle
  std::string how;
};

class CudaLinks final : public DeviceLinks {
 public:
  CudaLinks(int rank, const SlabLayout& layout, int device, Slab slab, CudaStream stream)
      : rank_(rank),
        layout_(layout),
        device_(device),
        slab_(std::move(slab)),
        stream_(std::move(stream)),
        peers_(static_cast<std::size_t>(layout.size)) {
    slab_.set_peers(layout.size);
  }
  ~CudaLinks() override { leave(); }

  const DeviceLinkTable& table() const override { return table_; }
  int rank() const override { return rank_; }
  int device() const override { return device_; }
  std::string describe(int peer) const override {
    return peers_[static_cast<std::size_t>(peer)].how;
  }
  std::size_t device_bytes() const override { return slab_.bytes(); }
  const std::string& why_no_ll128() const override { return why_no_ll128_; }
  Result<WindowMap> map_windows(void* ptr, std::size_t bytes,
                                Rendezvous& rendezvous) const override {
    return cuda_ipc::map_windows(device_, ptr, bytes, rendezvous);
  }

  Status reach(const std::vector<Card>& cards);
  Status say_hello();
  Status check_hellos();
  Status fill_table();
  Status check_lines(const std::vector<Card>& cards) const;
  void do_without_ll128(const std::string& why) { why_no_ll128_ = why; }
  // All ranks know that the links are not made: nobody writes to them any more.
  void give_up() {
    is_given_up_ = true;
    slab_.set_peers(0);
  }

 private:
  static std::uint64_t hello_of(int from, int to) {
    return 0x7265652d72696e67ull ^
           (static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to));
  }
  void leave();

  int rank_;
  SlabLayout layout_;
  int device_;
  Slab slab_;
  CudaStream stream_;
  std::vector<Peer> peers_;
  DeviceLinkTable table_;
  std::string why_no_ll128_;
  bool is_given_up_ = false;
};

// Maps every peer's slab.
Status CudaLinks::reach(const std::vector<Card>& cards) {
  for (int r = 0; r < layout_.size; ++r) {
    const Card& card = cards[static_cast<std::size_t>(r)];
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    if (card.pid == ::getpid()) {
      peer.base = card.base;
      if (card.device == device_) {
        peer.how = r == rank_ ? "itself" : "the same device and process";
        continue;
      }
      int can = 0;
      TR_RETURN_IF_ERROR(cuda_status(cudaDeviceCanAccessPeer(&can, device_, card.device),
                                     "cudaDeviceCanAccessPeer"));
      if (can == 0) {
        return unsupported("device " + std::to_string(device_) +
                           " cannot access the memory of device " + std::to_string(card.device) +
                           ", that of rank " + std::to_string(r));
      }
      const cudaError_t error = cudaDeviceEnablePeerAccess(card.device, 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
      } else {
        TR_RETURN_IF_ERROR(cuda_status(error, "cudaDeviceEnablePeerAccess"));
      }
      peer.how = "peer memory of device " + std::to_string(card.device) + ", same process";
      continue;
    }
    void* base = nullptr;
    TR_RETURN_IF_ERROR(
        cuda_status(cudaIpcOpenMemHandle(&base, card.handle, cudaIpcMemLazyEnablePeerAccess),
                    "cudaIpcOpenMemHandle of the memory of rank " + std::to_string(r) + " on GPU " +
                        card.bus_id));
    peer.base = static_cast<std::byte*>(base);
    peer.is_opened = true;
    peer.how = std::string("memory of GPU ") + card.bus_id + ", CUDA IPC";
  }
  return {};
}

// P2P that is forbidden or broken (IOMMU, ACS, virtual machines) shows as data that does not
// arrive: so every link carries data before it is believed.
Status CudaLinks::say_hello() {
  for (int r = 0; r < layout_.size; ++r) {
    const std::uint64_t hello = hello_of(rank_, r);
    std::byte* const at = peers_[static_cast<std::size_t>(r)].base + layout_.hello(rank_);
    TR_RETURN_IF_ERROR(stream_.copy(at, &hello, sizeof hello)
                           .with_context("writing to the memory of rank " + std::to_string(r)));
  }
  return {};
}

Status CudaLinks::check_hellos() {
  for (int r = 0; r < layout_.size; ++r) {
    std::uint64_t found = 0;
    TR_RETURN_IF_ERROR(stream_.copy(&found, slab_.base() + layout_.hello(r), sizeof found));
    if (found != hello_of(r, rank_)) {
      return Status(Code::kSystem,
                    "what rank " + std::to_string(r) + " wrote to this rank's device memory (" +
                        peers_[static_cast<std::size_t>(r)].how +
                        ") did not arrive; is peer-to-peer access broken by an IOMMU or ACS?");
    }
  }
  return {};
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
          std::byte* const theirs = peers_[static_cast<std::size_t>(r)].base;
          // A link lies where its reader is; the head lies where its writer is.
          const SlabLayout::End to = layout_.end(protocol, channel, cls, rank_);
          const SlabLayout::End from = layout_.end(protocol, channel, cls, r);
          DeviceLinkEnds& end = ends[table_.index(protocol, channel, cls, r)];
          end.tx = {theirs + to.slots, reinterpret_cast<DeviceTail*>(theirs + to.tails),
                    reinterpret_cast<const std::uint64_t*>(slab_.base() + from.head), 0, 0};
          end.rx = {slab_.base() + from.slots,
                    reinterpret_cast<const DeviceTail*>(slab_.base() + from.tails),
                    reinterpret_cast<std::uint64_t*>(theirs + to.head), 0};
        }
      }
    }
  }
  return stream_.copy(table_.ends, ends.data(), ends.size() * sizeof ends[0]);
}

// Do lines of 128 bytes that this rank's kernels store arrive whole, everywhere? (LL128.) In the
// memory of its own GPU they do, and over NVLink, from sm_70 on. CUDA does not say what a link is;
// but of those between GPUs, NVLink is the one that does atomics, and PCIe is not.
Status CudaLinks::check_lines(const std::vector<Card>& cards) const {
  int major = 0;
  TR_RETURN_IF_ERROR(
      cuda_status(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_),
                  "cudaDeviceGetAttribute"));
  const Card& mine = cards[static_cast<std::size_t>(rank_)];
  if (major < 7) {
    return unsupported(std::string("GPU ") + mine.bus_id + " is older than sm_70");
  }
  for (std::size_t r = 0; r < cards.size(); ++r) {
    const Card& card = cards[r];
    if (std::strcmp(card.bus_id, mine.bus_id) == 0) continue;
    int theirs = card.device;  // as that process numbers it
    if (card.pid != mine.pid) {
      TR_RETURN_IF_ERROR(
          cuda_status(cudaDeviceGetByPCIBusId(&theirs, card.bus_id),
                      std::string("finding GPU ") + card.bus_id + " of rank " + std::to_string(r)));
    }
    int atomics = 0;
    TR_RETURN_IF_ERROR(cuda_status(
        cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device_, theirs),
        "cudaDeviceGetP2PAttribute"));
    if (atomics == 0) {
      return unsupported("the link to GPU " + std::string(card.bus_id) + " of rank " +
                         std::to_string(r) + " is not NVLink, and may tear lines of 128 bytes");
    }
  }
  return {};
}

// What this rank's kernels had to store, they have stored: its operations are done.
void CudaLinks::leave() {
  const std::uint64_t gone = 1;
  for (const Peer& peer : peers_) {
    if (peer.base == nullptr) continue;
    if (!is_given_up_) (void)stream_.copy(peer.base + layout_.gone(rank_), &gone, sizeof gone);
    if (peer.is_opened) (void)cudaIpcCloseMemHandle(peer.base);
  }
}

Card no_device(const std::string& why) {
  Card card;
  std::snprintf(card.why_not, sizeof card.why_not, "%s", why.c_str());
  return card;
}

// count stays unwritten where there is no driver, so it starts at 0.
Card current_device() {
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
    return no_device(std::string("no GPU or no driver: ") + cudaGetErrorString(error));
  }
  card.has_device = true;
  card.pid = ::getpid();
  return card;
}

std::string to_blob(const Card& card) {
  return {reinterpret_cast<const char*>(&card), sizeof card};
}

// All ranks learn the first failure of any of them.
Status agree(Rendezvous& rendezvous, const Status& mine) {
  TR_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      rendezvous.all_gather(mine.ok() ? "" : mine.message()));
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!all[r].empty()) return unsupported("rank " + std::to_string(r) + ": " + all[r]);
  }
  return {};
}

Result<std::unique_ptr<DeviceLinks>> do_without(int rank, const DeviceLinkOptions& options,
                                                const Status& why) {
  if (options.strict) return why;
  TR_LOG_WARN(rank, "GPU memory is not used between ranks: %s", why.message().c_str());
  return std::unique_ptr<DeviceLinks>();
}

}  // namespace

Result<std::unique_ptr<DeviceLinks>> connect_device(Rendezvous& rendezvous,
                                                    const DeviceLinkOptions& options) {
  const int rank = rendezvous.rank();
  SlabLayout layout;
  layout.size = rendezvous.size();
  layout.channels = options.channels;
  for (int p = 0; p < kNumDeviceProtocols; ++p) {
    layout.slot_bytes[p] = SlabLayout::whole_lines(options.slot_bytes[p]);
  }

  // A rank that cannot take part says so to all, rather than leave them waiting.
  Card mine = current_device();
  std::optional<Slab> slab;
  CudaStream stream;
  if (mine.has_device) {
    Result<Slab> made = Slab::make(layout);
    Result<CudaStream> opened = CudaStream::make();
    if (made.ok() && opened.ok()) {
      slab = std::move(made).value();
      stream = std::move(opened).value();
      mine.base = slab->base();
      (void)cudaIpcGetMemHandle(&mine.handle, mine.base);  // only other processes need it
      (void)cudaGetLastError();
    } else {
      mine = no_device((made.ok() ? opened.status() : made.status()).message());
    }
  }
  TR_ASSIGN_OR_RETURN(const std::vector<std::string> blobs, rendezvous.all_gather(to_blob(mine)));
  std::vector<Card> cards(blobs.size());
  for (std::size_t r = 0; r < blobs.size(); ++r) {
    if (blobs[r].size() != sizeof(Card)) return internal_error("a GPU's card has the wrong size");
    std::memcpy(&cards[r], blobs[r].data(), sizeof(Card));
  }
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if (cards[r].has_device) continue;
    const Status status =
        unsupported("rank " + std::to_string(r) + " has no device: " + cards[r].why_not);
    if (options.strict) return status;
    TR_LOG_INFO(rank, "host engine only: %s", status.message().c_str());
    return std::unique_ptr<DeviceLinks>();
  }
  if (layout.size > kMaxDeviceRanks) {
    return do_without(rank, options,
                      unsupported(std::to_string(layout.size) + " ranks; kernels serve up to " +
                                  std::to_string(kMaxDeviceRanks)));
  }

  auto links =
      std::make_unique<CudaLinks>(rank, layout, mine.device, std::move(*slab), std::move(stream));
  Status status = links->reach(cards);
  if (status.ok()) status = links->say_hello();
  status = agree(rendezvous, status);
  if (status.ok()) {
    status = links->check_hellos();
    if (status.ok()) status = links->fill_table();
    status = agree(rendezvous, status);
  }
  if (!status.ok()) {
    if (status.code() == Code::kUnsupported) links->give_up();  // agreed, not a rank that is gone
    return do_without(rank, options, status);
  }
  // All ranks know of a link that is not good for LL128, or none does.
  const Status lines = agree(rendezvous, links->check_lines(cards));
  if (!lines.ok() && lines.code() != Code::kUnsupported) return lines;
  links->do_without_ll128(lines.message());
  return std::unique_ptr<DeviceLinks>(std::move(links));
}

}  // namespace treering
