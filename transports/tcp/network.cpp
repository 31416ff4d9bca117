#include "transports/tcp/network.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace treering::tcp {
namespace {

constexpr auto kAskEvery = std::chrono::milliseconds(20);
constexpr int kLostAfterMs = 30'000;

}  // namespace

Network::Network(int rank, int size, const Board& own)
    : rank_(rank),
      own_(own),
      by_rank_(static_cast<std::size_t>(size), nullptr),
      process_(::getpid()) {}

Result<std::unique_ptr<Network>> Network::start(int rank, int size, const Board& own,
                                                const std::array<std::size_t, kLinks>& data_bytes,
                                                bool checksum, std::vector<PeerSockets> peers) {
  std::unique_ptr<Network> network(new Network(rank, size, own));
  network->ready_.reset(::epoll_create1(EPOLL_CLOEXEC));
  network->wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!network->ready_.valid() || !network->wake_.valid())
    return system_error("cannot make the descriptors that wait for other hosts", errno);
  std::vector<int> descriptors;
  for (PeerSockets& sockets : peers) {
    descriptors.push_back(sockets.control.get());
    // Questions and answers that nobody acknowledges; data may wait for as long as the peer reads
    // none.
    (void)::setsockopt(sockets.control.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kLostAfterMs,
                       sizeof kLostAfterMs);
    for (const UniqueFd& socket : sockets.data) descriptors.push_back(socket.get());
    auto made = std::make_unique<Peer>(sockets.rank, rank, data_bytes, checksum);
    made->route = std::move(sockets.route);
    made->control = std::make_unique<Control>(std::move(sockets.control), own, *made->mirror);
    for (UniqueFd& socket : sockets.data) {
      made->streams.push_back(std::make_unique<Stream>(std::move(socket)));
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.ptr = made.get();
      if (::epoll_ctl(network->ready_.get(), EPOLL_CTL_ADD, made->streams.back()->fd(), &event) !=
          0)
        return system_error("cannot wait for a connection of rank " + std::to_string(made->rank),
                            errno);
      ++network->streams_;
    }
    network->by_rank_[static_cast<std::size_t>(made->rank)] = made.get();
    network->peers_.push_back(std::move(made));
  }
  network->guard_ = std::make_unique<ForkGuard>(std::move(descriptors));
  // Signals are for the program's own threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    network->thread_ = std::thread([n = network.get()] { n->run(); });
  } catch (const std::system_error& e) {
    status = system_error("cannot start the thread that answers other hosts (see ulimit -u, -v)",
                          e.code().value());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  TR_RETURN_IF_ERROR(status);
  return network;
}

Network::~Network() {
  if (process_ != ::getpid()) {
    thread_.detach();
    return;
  }
  stop_.store(true, std::memory_order_release);  // pairs with run
  wake();
  if (thread_.joinable()) thread_.join();
}

void Network::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void Network::open_out(int rank, int link, const FifoTx& end, FifoHead& head) {
  std::lock_guard lock(mutex_);
  peer(rank).links.open_out(link, end, head);
}

Result<const LinkMemory*> Network::open_in(int rank, int link) {
  std::lock_guard lock(mutex_);
  return peer(rank).links.open_in(link);
}

// Frames that have begun end on their connections; new ones go over the first of which the kernel
// takes all.
bool Network::send(Peer& peer, bool any_credit) {
  bool moved = false, one_is_free = false;
  for (const auto& stream : peer.streams) {
    if (one_is_free && stream->is_flushed()) continue;
    moved |= stream->send(peer.links, any_credit);
    one_is_free |= stream->is_flushed() && stream->may_send();
  }
  return moved;
}

bool Network::receive(Peer& peer) {
  bool moved = false;
  for (const auto& stream : peer.streams) {
    if (!stream->is_closed()) moved |= stream->receive(peer.links);
    if (stream->is_closed()) (void)::epoll_ctl(ready_.get(), EPOLL_CTL_DEL, stream->fd(), nullptr);
  }
  return moved;
}

// With few connections, trying to read is cheaper than asking which can be read.
bool Network::receive_all() {
  constexpr std::size_t kFewStreams = 2;
  bool moved = false;
  if (streams_ <= kFewStreams) {
    for (const auto& peer : peers_) moved |= receive(*peer);
    return moved;
  }
  epoll_event events[64];
  const int ready = ::epoll_wait(ready_.get(), events, std::size(events), 0);
  Peer* last = nullptr;
  for (int i = 0; i < ready; ++i) {
    auto* const peer = static_cast<Peer*>(events[i].data.ptr);
    if (peer != last) moved |= receive(*peer);
    last = peer;
  }
  return moved;
}

bool Network::progress() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  bool moved = false;
  for (const auto& peer : peers_) moved |= send(*peer, false);
  moved |= receive_all();
  if (moved) return true;
  // Nothing to do: a good time for credits that were kept back to go along with messages.
  for (const auto& peer : peers_) {
    if (peer->links.has_credit() && state_of(*peer) <= RankState::kLive) send(*peer, true);
  }
  return false;
}

bool Network::has_unsent(const Peer& peer) const {
  const bool usable = std::any_of(peer.streams.begin(), peer.streams.end(),
                                  [](const auto& stream) { return stream->may_send(); });
  if (!usable) return false;
  return peer.links.has_message() ||
         std::any_of(peer.streams.begin(), peer.streams.end(),
                     [](const auto& stream) { return !stream->is_flushed(); });
}

void Network::flush() {
  bool rest = false;
  {
    std::lock_guard lock(mutex_);
    for (const auto& peer : peers_) {
      send(*peer, false);
      rest |= has_unsent(*peer);
    }
    if (rest) left_over_ = true;
  }
  if (rest) wake();
}

void Network::wait(std::chrono::nanoseconds at_most) {
  std::vector<pollfd> entries;
  {
    std::lock_guard lock(mutex_);
    entries.push_back({ready_.get(), POLLIN, 0});
    for (const auto& peer : peers_) {
      for (const auto& stream : peer->streams) {
        if (!stream->is_flushed()) entries.push_back({stream->fd(), POLLOUT, 0});
      }
    }
  }
  const auto ns = std::clamp<std::int64_t>(at_most.count(), 0, 999'999'999);
  const timespec limit{0, static_cast<long>(ns)};
  (void)::ppoll(entries.data(), entries.size(), &limit, nullptr);
}

RankState Network::state_of(const Peer& peer) const {
  return peer.mirror->state.load(std::memory_order_acquire);  // pairs with copy_board
}

bool Network::is_drained(const Peer& peer) const {
  return std::all_of(peer.streams.begin(), peer.streams.end(),
                     [](const auto& stream) { return stream->is_closed(); });
}

void Network::push_board() {
  std::lock_guard lock(mutex_);
  for (const auto& peer : peers_) {
    peer->control->push_board();
    peer->control->flush();
    if (!peer->control->is_flushed()) wake();
  }
}

void Network::ask_boards() {
  std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (now - asked_ < kAskEvery) return;
  asked_ = now;
  for (const auto& peer : peers_) {
    peer->control->ask();
    peer->control->flush();
    if (!peer->control->is_flushed()) wake();
  }
}

Status Network::broken(const Peer& peer) const {
  const std::string who = "rank " + std::to_string(peer.rank) + " (" + peer.route + ")";
  if (peer.control->is_closed()) {
    if (peer.control->error().ok()) return remote_error(who + " ended");
    return remote_error("lost " + who + ": " + peer.control->error().message());
  }
  for (const auto& stream : peer.streams) {
    if (stream->is_reset()) return remote_error(who + " ended");
    if (!stream->error().ok()) return stream->error().with_context("connection to " + who);
  }
  return {};
}

Status Network::check_gone() {
  std::lock_guard lock(mutex_);
  for (const auto& peer : peers_) {
    if (state_of(*peer) > RankState::kLive) continue;
    TR_RETURN_IF_ERROR(broken(*peer));
  }
  return {};
}

Status Network::check_failed() {
  for (const bool aborted : {true, false}) {
    for (const auto& peer : peers_) {
      const RankState state = state_of(*peer);
      const std::string who = "rank " + std::to_string(peer->rank);
      if (aborted && state == RankState::kAborted)
        return Status(Code::kAborted, who + " aborted the communicator");
      if (aborted || state != RankState::kFailed) continue;
      const Board& board = *peer->mirror;
      auto code = static_cast<Code>(board.code.load(std::memory_order_relaxed));
      if (code == Code::kOk || code > Code::kInternal) code = Code::kRemote;
      std::string text = who + " failed: ";
      text.append(board.cause, ::strnlen(board.cause, kCauseBytes));
      return Status(code, text);
    }
  }
  return {};
}

bool Network::has_ended(int rank) {
  std::lock_guard lock(mutex_);
  Peer& p = peer(rank);
  if (state_of(p) != RankState::kFinalized && !p.control->is_closed()) return false;
  while (receive(p)) {
  }
  return is_drained(p);
}

std::string Network::describe(int rank) const {
  const Peer& p = peer(rank);
  const std::size_t sockets = p.streams.size();
  return "TCP: " + p.route + ", " + std::to_string(sockets) +
         (sockets == 1 ? " connection for data" : " connections for data");
}

void Network::leave(bool with_data, std::chrono::milliseconds limit) {
  push_board();
  const Clock::time_point end = Clock::now() + limit;
  constexpr auto kPause = std::chrono::milliseconds(1);
  for (;;) {
    bool rest = false;
    {
      std::lock_guard lock(mutex_);
      for (const auto& peer : peers_) {
        peer->control->flush();
        if (peer->control->is_closed() || is_drained(*peer)) continue;
        int queued = 0;
        (void)::ioctl(peer->control->fd(), SIOCOUTQ, &queued);
        rest |= !peer->control->is_flushed() || queued > 0;
        if (!with_data || state_of(*peer) > RankState::kLive) continue;
        send(*peer, false);
        rest |= has_unsent(*peer);
        for (const auto& stream : peer->streams) {
          queued = 0;
          if (stream->may_send()) (void)::ioctl(stream->fd(), SIOCOUTQ, &queued);
          rest |= queued > 0;
        }
        // Unread input would make the end of a connection a reset, and lose what it still carries.
        receive(*peer);
      }
    }
    if (!rest || Clock::now() >= end) return;
    std::this_thread::sleep_for(kPause);
  }
}

std::size_t Network::memory_bytes() {
  std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& peer : peers_) bytes += peer->links.memory_bytes();
  return bytes;
}

// What the thread does for one peer; true while something of the control connection is unsent.
bool Network::serve(Peer& peer, bool readable) {
  if (readable && peer.control->receive()) {
    peer.control->push_board();
    // The peer waits: perhaps for credit.
    if (peer.links.has_credit()) send(peer, true);
  }
  peer.control->flush();
  return !peer.control->is_flushed();
}

void Network::run() {
  std::vector<pollfd> entries;
  std::vector<Peer*> whose;
  while (!stop_.load(std::memory_order_acquire)) {  // pairs with the destructor
    entries.assign(1, {wake_.get(), POLLIN, 0});
    whose.assign(1, nullptr);
    {
      std::lock_guard lock(mutex_);
      bool rest = false;
      for (const auto& peer : peers_) {
        if (!peer->control->is_closed()) {
          const short out = peer->control->is_flushed() ? 0 : POLLOUT;
          entries.push_back({peer->control->fd(), static_cast<short>(POLLIN | out), 0});
          whose.push_back(peer.get());
        }
        if (!left_over_) continue;
        send(*peer, false);
        rest |= has_unsent(*peer);
        for (const auto& stream : peer->streams) {
          if (stream->is_flushed()) continue;
          entries.push_back({stream->fd(), POLLOUT, 0});
          whose.push_back(nullptr);
        }
      }
      left_over_ = rest;
    }
    if (::poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return;
    std::uint64_t woken = 0;
    if (entries[0].revents != 0) (void)!::read(wake_.get(), &woken, sizeof woken);
    std::lock_guard lock(mutex_);
    for (std::size_t i = 1; i < entries.size(); ++i) {
      if (whose[i] != nullptr && entries[i].revents != 0)
        serve(*whose[i], (entries[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0);
    }
  }
}

}  // namespace treering::tcp
