#include "transports/tcp/peer_links.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <sys/mman.h>
#include <utility>

#include "transports/segment.hpp"
#include "transports/tcp/checksum.hpp"

namespace treering::tcp {
namespace {

constexpr std::size_t kControlBytes = 4096;  // lines and head, in a page of their own
static_assert(kFifoLines * sizeof(FifoLine) + sizeof(FifoHead) <= kControlBytes);

}  // namespace

Result<LinkMemory> LinkMemory::make(std::size_t data_bytes) {
  LinkMemory memory;
  void* const base = ::mmap(nullptr, kControlBytes + data_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    return system_error("cannot map " + std::to_string(kControlBytes + data_bytes) +
                            " bytes for a link between hosts",
                        errno);
  memory.base_ = static_cast<std::byte*>(base);
  memory.data_bytes_ = data_bytes;
  TR_RETURN_IF_ERROR(make_resident(memory.base_, memory.bytes()));
  return memory;
}

LinkMemory::LinkMemory(LinkMemory&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      data_bytes_(std::exchange(other.data_bytes_, 0)) {}

LinkMemory& LinkMemory::operator=(LinkMemory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(data_bytes_, other.data_bytes_);
  return *this;
}

LinkMemory::~LinkMemory() {
  if (base_ != nullptr) ::munmap(base_, bytes());
}

FifoHead* LinkMemory::head() const {
  return reinterpret_cast<FifoHead*>(base_ + kFifoLines * sizeof(FifoLine));
}
std::byte* LinkMemory::data() const { return base_ + kControlBytes; }
std::size_t LinkMemory::bytes() const { return base_ != nullptr ? kControlBytes + data_bytes_ : 0; }

PeerLinks::PeerLinks(int rank, int peer, const std::array<std::size_t, kLinks>& data_bytes,
                     bool checksum)
    : rank_(rank), peer_(peer), data_bytes_(data_bytes), checksum_(checksum) {}

void PeerLinks::open_out(int link, const FifoTx& end, FifoHead& head) {
  Outbound& out = out_[static_cast<std::size_t>(link)];
  out.end = &end;
  out.head = &head;
}

Result<const LinkMemory*> PeerLinks::open_in(int link) {
  const auto i = static_cast<std::size_t>(link);
  LinkMemory& memory = in_[i].memory;
  if (!memory.exists()) {
    TR_ASSIGN_OR_RETURN(memory, LinkMemory::make(data_bytes_[i]));
  }
  return &memory;
}

bool PeerLinks::is_posted(const Outbound& out) {
  // Pairs with tx_post: lengths, signature and payload are there.
  return out.end != nullptr && out.end->lines[out.taken % kFifoLines].tail.load(
                                   std::memory_order_acquire) == out.taken + 1;
}

bool PeerLinks::has_message() const {
  return std::any_of(out_.begin(), out_.end(), [](const Outbound& out) { return is_posted(out); });
}

// Links take turns, message by message, so that a long vector on one does not keep back another.
bool PeerLinks::take_message(Frame* frame, const std::byte** payload) {
  for (int i = 0; i < kLinks; ++i) {
    const int link = (turn_ + i) % kLinks;
    Outbound& out = out_[static_cast<std::size_t>(link)];
    if (!is_posted(out)) continue;
    const FifoLine& line = out.end->lines[out.taken % kFifoLines];
    const FifoLength length = out.end->lengths[out.taken % kFifoLines];
    const bool is_short = length.bytes <= kInlineBytes;
    *payload = line.payload;
    if (!is_short) {
      const std::uint32_t slots = fifo_slots(out.end->data_bytes, length.slot_bytes);
      *payload = out.end->data + out.taken % slots * length.slot_bytes;
    }
    frame->kind = FrameKind::kMessage;
    frame->link = static_cast<std::uint16_t>(link);
    frame->bytes = length.bytes;
    frame->slot_bytes = is_short ? 0 : length.slot_bytes;
    frame->number = out.taken++;
    frame->signature = line.signature;
    frame->checksum = checksum_ ? checksum_of(*frame, *payload) : 0;
    bytes_sent_ += length.bytes;
    turn_ = (link + 1) % kLinks;
    return true;
  }
  return false;
}

bool PeerLinks::has_credit() const {
  return std::any_of(in_.begin(), in_.end(), [](const Inbound& in) {
    return in.memory.exists() &&
           in.memory.head()->head.load(std::memory_order_relaxed) != in.credited;
  });
}

bool PeerLinks::take_credit(Frame* frame, bool any) {
  for (int link = 0; link < kLinks; ++link) {
    Inbound& in = in_[static_cast<std::size_t>(link)];
    if (!in.memory.exists()) continue;
    // Pairs with rx_release: what was released has been read, so it may be overwritten here.
    const std::uint64_t head = in.memory.head()->head.load(std::memory_order_acquire);
    const std::uint64_t fresh = head - in.credited;
    if (fresh == 0 || (!any && 2 * fresh < in.window)) continue;
    *frame = {};
    frame->kind = FrameKind::kCredit;
    frame->link = static_cast<std::uint16_t>(link);
    frame->number = in.credited = head;
    return true;
  }
  return false;
}

Status PeerLinks::bad(const Frame& frame, const char* what) const {
  std::string name = "link " + std::to_string(frame.link);
  if (frame.link < kLinks) {
    const bool credit = frame.kind == FrameKind::kCredit;
    name = "link " + to_string(link_of(frame.link, credit ? rank_ : peer_, credit ? peer_ : rank_));
  }
  return remote_error("rank " + std::to_string(peer_) + " sent message " +
                      std::to_string(frame.number) + " of " + name + ", but " + what);
}

Status PeerLinks::begin(const Frame& frame, std::byte** payload) {
  *payload = nullptr;
  if (frame.link >= kLinks) return bad(frame, "there is no such link");
  if (frame.kind == FrameKind::kMessage) return begin_message(frame, payload);
  if (frame.kind == FrameKind::kCredit) return take(frame);
  return bad(frame, "its kind is unknown");
}

// A credit.
Status PeerLinks::take(const Frame& frame) {
  Outbound& out = out_[frame.link];
  if (out.end == nullptr || frame.bytes != 0 || frame.number > out.taken)
    return bad(frame, "that was never sent");
  if (frame.number < out.head->head.load(std::memory_order_relaxed)) return {};  // overtaken
  // Pairs with tx_refresh. The peer has it all, so the slot may be used again.
  out.head->head.store(frame.number, std::memory_order_release);
  return {};
}

Status PeerLinks::begin_message(const Frame& frame, std::byte** payload) {
  Inbound& in = in_[frame.link];
  const std::size_t data_bytes = data_bytes_[frame.link];
  std::uint32_t window = kFifoLines;
  if (frame.bytes > kInlineBytes) {
    if (frame.slot_bytes == 0 || frame.slot_bytes % kSlotAlign != 0 ||
        frame.bytes > frame.slot_bytes || frame.slot_bytes > data_bytes)
      return bad(frame, "its length fits no slot");
    window = fifo_slots(data_bytes, frame.slot_bytes);
  }
  if (!in.memory.exists()) TR_RETURN_IF_ERROR(open_in(frame.link).status());
  FifoLine& line = in.memory.lines()[frame.number % kFifoLines];
  const std::uint64_t head = in.memory.head()->head.load(std::memory_order_acquire);
  if (frame.number < head || frame.number - head >= window ||
      line.tail.load(std::memory_order_relaxed) == frame.number + 1)
    return bad(frame, "there is no room for it");
  in.window = window;
  *payload = line.payload;
  if (frame.bytes > kInlineBytes)
    *payload = in.memory.data() + frame.number % window * frame.slot_bytes;
  return {};
}

Status PeerLinks::complete(const Frame& frame, const std::byte* payload) {
  if (frame.kind != FrameKind::kMessage) return {};
  if (checksum_ && checksum_of(frame, payload) != frame.checksum)
    return bad(frame, "its checksum is wrong: it was damaged on the way (TR_CHECKSUM=1 looks)");
  FifoLine& line = in_[frame.link].memory.lines()[frame.number % kFifoLines];
  line.signature = frame.signature;
  line.tail.store(frame.number + 1, kFifoPostOrder);  // pairs with rx_ready
  bytes_received_ += frame.bytes;
  return {};
}

std::size_t PeerLinks::memory_bytes() const {
  std::size_t bytes = 0;
  for (const Inbound& in : in_) bytes += in.memory.bytes();
  return bytes;
}

}  // namespace treering::tcp
