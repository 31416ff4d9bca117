// Peer-to-peer access that is forbidden or broken (containers, MIG, an IOMMU, ACS) may show only
// when it is used: as an error, as data that does not arrive, or as a copy that never ends. So
// every way carries a word before it is believed, and has so long and no longer.
#include <chrono>
#include <thread>
#include <utility>

#include "core/deadline.hpp"
#include "transports/cuda_ipc/links.hpp"

namespace treering::cuda_ipc {
namespace {

std::uint64_t word_of(int from, int to) {
  return 0x7265652d72696e67ull ^
         (static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to));
}

// False: the deadline came first.
Result<bool> wait(const CudaStream& stream, Deadline deadline) {
  for (;;) {
    TR_ASSIGN_OR_RETURN(const bool done, stream.is_done());
    if (done) return true;
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// Copies between the GPU's own memory and pinned memory, which can be given up, unlike those of
// other memory of the host: CUDA may wait for them.
class Words {
 public:
  static Result<Words> make(int count, const CudaStream& stream) {
    TR_ASSIGN_OR_RETURN(PinnedSlab memory,
                        PinnedSlab::make(static_cast<std::size_t>(count) * sizeof(std::uint64_t)));
    return Words(std::move(memory), stream);
  }
  std::uint64_t& operator[](std::size_t i) const {
    return reinterpret_cast<std::uint64_t*>(memory_.on_host())[i];
  }
  std::byte* on_device(std::size_t i) const {
    return memory_.on_device() + i * sizeof(std::uint64_t);
  }
  Status start_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    TR_RETURN_IF_ERROR(stream_->start_copy(to, from, bytes));
    memory_.set_writers({0});  // never used again, unless the copies are known to have ended
    return {};
  }
  Status wait_for_copies(int trial_ms) {
    TR_ASSIGN_OR_RETURN(const bool done, wait(*stream_, Deadline::after_ms(trial_ms)));
    if (done) {
      memory_.set_writers({});
      return {};
    }
    return Status(Code::kTimeout, "the GPU has not copied 8 bytes of its own memory within " +
                                      std::to_string(trial_ms) + " ms");
  }

 private:
  Words(PinnedSlab memory, const CudaStream& stream)
      : memory_(std::move(memory)), stream_(&stream) {}
  PinnedSlab memory_;
  const CudaStream* stream_;
};

}  // namespace

// From GPU to GPU, each on a stream of its own: who hangs keeps nobody up.
Status CudaLinks::send_words(const std::vector<int>& peers, int trial_ms) {
  if (peers.empty()) return {};
  TR_ASSIGN_OR_RETURN(Words words, Words::make(layout_.size, stream_));
  for (int r = 0; r < layout_.size; ++r) words[static_cast<std::size_t>(r)] = word_of(rank_, r);
  // Where the table will lie (fill_table), which nobody needs yet.
  std::byte* const own = slab_.base() + layout_.ends();
  const std::size_t bytes = static_cast<std::size_t>(layout_.size) * sizeof(std::uint64_t);
  TR_RETURN_IF_ERROR(words.start_copy(own, words.on_device(0), bytes));
  TR_RETURN_IF_ERROR(words.wait_for_copies(trial_ms));

  std::vector<CudaStream> streams(peers.size());
  std::vector<Status> started(peers.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const Way& w = way(peers[i]);
    const std::byte* const word = own + static_cast<std::size_t>(peers[i]) * sizeof(std::uint64_t);
    Result<CudaStream> stream = CudaStream::make();
    if (stream.ok()) streams[i] = std::move(stream).value();
    started[i] = stream.ok() ? streams[i].start_copy(w.theirs + w.their_layout.hello(w.me), word,
                                                     sizeof(std::uint64_t))
                             : stream.status();
  }
  const Deadline deadline = Deadline::after_ms(trial_ms);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const Result<bool> done = started[i].ok() ? wait(streams[i], deadline) : started[i];
    if (done.ok() && done.value()) continue;
    finding(peers[i]) = {
        started[i].ok() ? Finding::State::kHangs : Finding::State::kFails,
        "writing to the memory of rank " + std::to_string(peers[i]) + " (" + way(peers[i]).how +
            ")" +
            (done.ok() ? " has not ended within " + std::to_string(trial_ms) + " ms"
                       : ": " + done.status().message())};
    if (started[i].ok()) ways_[static_cast<std::size_t>(peers[i])].mapping.leak();
  }
  return {};
}

Status CudaLinks::check_words(const std::vector<int>& peers, int trial_ms) {
  if (peers.empty()) return {};
  TR_ASSIGN_OR_RETURN(Words words, Words::make(layout_.size, stream_));
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const Way& w = way(peers[i]);
    TR_RETURN_IF_ERROR(words.start_copy(words.on_device(i), w.mine + w.my_layout.hello(w.them),
                                        sizeof(std::uint64_t)));
  }
  TR_RETURN_IF_ERROR(words.wait_for_copies(trial_ms));
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (words[i] == word_of(peers[i], rank_)) continue;
    finding(peers[i]) = {Finding::State::kFails,
                         "what rank " + std::to_string(peers[i]) + " wrote to the memory of GPU " +
                             mine().bus_id + " of rank " + std::to_string(rank_) +
                             " did not arrive; an IOMMU or ACS may break peer-to-peer access"};
  }
  return {};
}

Result<Findings> CudaLinks::try_with_words(Rendezvous& rendezvous, const Status& status,
                                           const std::vector<int>& peers, int trial_ms) {
  const Status saying = status.ok() ? send_words(peers, trial_ms) : status;
  TR_ASSIGN_OR_RETURN(const Findings sent, exchange_findings(rendezvous, saying, findings_));
  std::vector<int> came;
  for (const int r : peers) {
    if (why_not(sent, rank_, r).empty()) came.push_back(r);
  }
  const Status looking = check_words(came, trial_ms);
  return exchange_findings(rendezvous, looking, findings_);
}

Result<Findings> CudaLinks::try_ways(Rendezvous& rendezvous, const Status& status, int trial_ms) {
  std::vector<int> peers;
  for (int r = 0; r < layout_.size; ++r) {
    if (!is_same_place(r) && finding(r).works()) peers.push_back(r);
  }
  TR_ASSIGN_OR_RETURN(Findings findings, try_with_words(rendezvous, status, peers, trial_ms));
  settle_writers(findings);
  return findings;
}

// A copy that hangs may still land: then the slab is never used again.
void CudaLinks::settle_writers(const Findings& findings) {
  std::vector<int> writers;
  for (int r = 0; r < layout_.size; ++r) {
    const Finding& theirs = findings[static_cast<std::size_t>(r)][static_cast<std::size_t>(rank_)];
    const bool hangs = theirs.state == Finding::State::kHangs;
    if (hangs) stuck_.push_back(r);
    if (hangs || why_not(findings, rank_, r).empty()) writers.push_back(r);
  }
  slab_.set_writers(std::move(writers));
}

}  // namespace treering::cuda_ipc
