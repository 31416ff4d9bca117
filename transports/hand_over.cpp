#include "transports/hand_over.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>

#include "core/deadline.hpp"
#include "core/rank_list.hpp"

namespace treering {
namespace {

constexpr int kBacklog = 4096;  // the kernel lowers it to its limit; a full one is tried again
constexpr int kRetryMs = 2;
constexpr int kAskMs = 50;  // Interrupted
// Gifts on their way at a time: bounds this process's descriptors whatever the number of ranks.
constexpr std::size_t kMaxInFlight = 64;

struct Packet {
  char magic[8] = {'t', 'r', 'e', 'e', 'r', 'i', 'n', 'g'};
  Token secret{};  // of the listener
  std::int32_t rank = -1;
  std::int32_t padding = 0;
};

struct Address {
  sockaddr_un un{};
  socklen_t bytes = 0;
};

Address address_of(const Token& name) {
  Address address;
  address.un.sun_family = AF_UNIX;
  char* const path = address.un.sun_path;  // a leading zero byte: the abstract name space
  const int length = std::snprintf(
      path + 1, sizeof(address.un.sun_path) - 1, "treering-%016llx%016llx",
      static_cast<unsigned long long>(name[0]), static_cast<unsigned long long>(name[1]));
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                         static_cast<std::size_t>(length));
  return address;
}

// Who connected, as the kernel knows it; nobody (uid -1) if it does not.
ucred credentials(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
    peer = {0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  return peer;
}

// One descriptor's worth of ancillary data, aligned as the kernel wants it.
union Ancillary {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

bool send_packet(int socket, const Packet& packet, int fd) {
  iovec part{const_cast<Packet*>(&packet), sizeof(packet)};
  Ancillary ancillary{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes;
  message.msg_controllen = sizeof(ancillary.bytes);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(packet));
}

struct Arrival {
  Packet packet;
  UniqueFd fd;
  bool fd_was_lost = false;  // this process is at its limit of descriptors
};

// Empty if what came is no packet of ours.
std::optional<Arrival> receive_packet(int socket) {
  Arrival arrival;
  iovec part{&arrival.packet, sizeof(arrival.packet)};
  Ancillary ancillary{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes;
  message.msg_controllen = sizeof(ancillary.bytes);
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) return std::nullopt;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(header), sizeof(int));
    arrival.fd.reset(number);
  }
  arrival.fd_was_lost = (message.msg_flags & MSG_CTRUNC) != 0;
  if (got != static_cast<ssize_t>(sizeof(Packet)) || (message.msg_flags & MSG_TRUNC) != 0 ||
      std::memcmp(arrival.packet.magic, Packet{}.magic, sizeof(Packet::magic)) != 0 ||
      arrival.fd.valid() == arrival.fd_was_lost)
    return std::nullopt;
  return arrival;
}

// One run of the hand-over.
class Exchange {
 public:
  Exchange(int rank, int file, const Doorbell& doorbell, UniqueFd listener,
           const std::vector<Neighbour>& neighbours, const TakeFile& take,
           const Interrupted& interrupted)
      : rank_(rank),
        file_(file),
        doorbell_(doorbell),
        listener_(std::move(listener)),
        neighbours_(neighbours),
        take_(take),
        interrupted_(interrupted),
        pairs_(neighbours.size()),
        received_(neighbours.size()) {}

  Result<std::vector<Received>> run(int timeout_ms) {
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    for (;;) {
      const bool all_sent = send_to_all();
      if (std::ranges::all_of(pairs_, [](const Pair& pair) { return pair.done(); })) break;
      if (deadline.expired()) {
        note(timed_out(timeout_ms));
        break;
      }
      if (interrupted_ && interrupted_()) {
        note(Status(
            Code::kAborted,
            "the hand-over of shared memory was ended: by tr_comm_abort, a deadline, or a rank "
            "that gave up"));
        break;
      }
      const int left_ms = deadline.is_never() ? kAskMs : std::min(kAskMs, deadline.poll_ms());
      wait(all_sent ? left_ms : std::min(kRetryMs, left_ms));
    }
    if (!first_error_.ok()) return first_error_;
    return std::move(received_);
  }

 private:
  enum class Gift { kUnsent, kSent, kAcknowledged };

  // What is between this rank and a neighbour.
  struct Pair {
    Gift gift = Gift::kUnsent;
    UniqueFd out;        // while kSent
    bool taken = false;  // the neighbour's gift came
    bool done() const { return gift == Gift::kAcknowledged && taken; }
  };

  void note(Status error) {
    if (first_error_.ok()) first_error_ = std::move(error);
  }

  // The neighbour is lost: nothing more is expected there.
  void give_up(std::size_t i, Status error) {
    note(std::move(error));
    pairs_[i].gift = Gift::kAcknowledged;
    pairs_[i].out.reset();
    pairs_[i].taken = true;
  }

  bool send_to_all() {
    std::size_t in_flight = 0;
    for (const Pair& pair : pairs_) in_flight += pair.gift == Gift::kSent ? 1 : 0;
    bool all_sent = true;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (pairs_[i].gift != Gift::kUnsent) continue;
      const int error = in_flight < kMaxInFlight ? send(i) : EAGAIN;
      // A full backlog; too many descriptors on their way to be received (ETOOMANYREFS).
      if (error == EAGAIN || error == EINTR || error == ETOOMANYREFS)
        all_sent = false;
      else if (error == ECONNREFUSED)
        give_up(i, remote_error(rank_list({neighbours_[i].rank}) +
                                " does not listen for shared memory any more; has it ended?"));
      else if (error != 0)
        give_up(i, system_error("cannot hand shared memory to " + rank_list({neighbours_[i].rank}) +
                                    " over a Unix socket",
                                error));
      else
        ++in_flight;
    }
    return all_sent;
  }

  // 0 or an errno value. Neither connecting nor sending ever waits.
  int send(std::size_t i) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) return errno;
    const Address address = address_of(neighbours_[i].doorbell.name);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.un), address.bytes) != 0)
      return errno;
    // Who listens there: memory goes to this user's processes only.
    if (credentials(socket.get()).uid != ::geteuid()) return EACCES;
    Packet packet;
    packet.secret = neighbours_[i].doorbell.secret;
    packet.rank = rank_;
    if (!send_packet(socket.get(), packet, file_)) return errno;
    pairs_[i].gift = Gift::kSent;
    pairs_[i].out = std::move(socket);
    return 0;
  }

  void wait(int timeout_ms) {
    std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
    const std::size_t old_callers = callers_.size();
    for (const UniqueFd& caller : callers_) entries.push_back({caller.get(), POLLIN, 0});
    for (const Pair& pair : pairs_) entries.push_back({pair.out.get(), POLLIN, 0});  // -1: ignored
    if (::poll(entries.data(), entries.size(), timeout_ms) <= 0) return;  // or a signal: look again
    for (std::size_t i = 0; i < pairs_.size(); ++i)
      if (entries[1 + old_callers + i].revents != 0) read_acknowledgement(i);
    for (std::size_t c = old_callers; c-- > 0;) {
      if (entries[1 + c].revents == 0) continue;
      UniqueFd caller = std::move(callers_[c]);
      callers_.erase(callers_.begin() + static_cast<std::ptrdiff_t>(c));
      take(std::move(caller));
    }
    if (entries[0].revents != 0) accept_all();
  }

  void read_acknowledgement(std::size_t i) {
    char byte = 0;
    const ssize_t got = ::recv(pairs_[i].out.get(), &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got != 1) {
      give_up(i, remote_error(rank_list({neighbours_[i].rank}) +
                              " ended or gave up while shared memory was handed over"));
      return;
    }
    pairs_[i].gift = Gift::kAcknowledged;
    if (neighbours_[i].keep_connection)
      received_[i].own_end = std::move(pairs_[i].out);
    else
      pairs_[i].out.reset();
  }

  void accept_all() {
    for (;;) {
      UniqueFd caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!caller.valid()) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
        note(system_error("cannot accept the connections of other ranks", errno));
        for (Pair& pair : pairs_) pair.taken = true;  // nobody else can come
        return;
      }
      if (credentials(caller.get()).uid == ::geteuid()) callers_.push_back(std::move(caller));
    }
  }

  void take(UniqueFd caller) {
    std::optional<Arrival> arrival = receive_packet(caller.get());
    if (!arrival || arrival->packet.secret != doorbell_.secret) return;  // a stranger
    const auto it = std::ranges::find(neighbours_, arrival->packet.rank, &Neighbour::rank);
    if (it == neighbours_.end()) return;
    const auto i = static_cast<std::size_t>(it - neighbours_.begin());
    if (pairs_[i].taken) return;
    pairs_[i].taken = true;
    received_[i].pid = credentials(caller.get()).pid;
    // Says "it came", not "it maps": that goes round by the rendezvous afterwards. A neighbour that
    // has hung up in the meantime will be noticed where it should acknowledge.
    const char byte = 1;
    (void)::send(caller.get(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (arrival->fd_was_lost) {
      note(system_error("cannot receive the memory of " + rank_list({it->rank}), EMFILE));
      return;
    }
    const Status mapped = take_(i, std::move(arrival->fd));
    if (!mapped.ok()) {
      note(mapped.with_context("while mapping the memory of " + rank_list({it->rank})));
      return;
    }
    if (it->keep_connection) received_[i].connection = std::move(caller);
  }

  Status timed_out(int timeout_ms) const {
    std::vector<int> late;
    std::vector<int> deaf;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (!pairs_[i].taken)
        late.push_back(neighbours_[i].rank);
      else if (pairs_[i].gift != Gift::kAcknowledged)
        deaf.push_back(neighbours_[i].rank);
    }
    std::string text =
        "the hand-over of shared memory took longer than " + std::to_string(timeout_ms) + " ms: ";
    if (!late.empty()) text += "nothing came from " + rank_list(late);
    if (!late.empty() && !deaf.empty()) text += ", ";
    if (!deaf.empty()) text += "no answer came from " + rank_list(deaf);
    return Status(Code::kTimeout, text);
  }

  int rank_;
  int file_;
  const Doorbell& doorbell_;
  UniqueFd listener_;
  const std::vector<Neighbour>& neighbours_;
  const TakeFile& take_;
  const Interrupted& interrupted_;
  std::vector<Pair> pairs_;         // by neighbour
  std::vector<Received> received_;  // by neighbour
  std::vector<UniqueFd> callers_;   // accepted, nothing received yet
  Status first_error_;
};

}  // namespace

Result<HandOver> HandOver::open() {
  Doorbell doorbell;
  TR_ASSIGN_OR_RETURN(doorbell.name, random_token());
  TR_ASSIGN_OR_RETURN(doorbell.secret, random_token());
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return system_error("cannot create a Unix socket", errno);
  const Address address = address_of(doorbell.name);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.un), address.bytes) != 0)
    return system_error("cannot bind an abstract Unix socket", errno);
  if (::listen(listener.get(), kBacklog) != 0)
    return system_error("cannot listen on a Unix socket", errno);
  return HandOver(doorbell, std::move(listener));
}

Result<std::vector<Received>> HandOver::run(int rank, int file,
                                            const std::vector<Neighbour>& neighbours,
                                            const TakeFile& take, int timeout_ms,
                                            const Interrupted& interrupted) {
  return Exchange(rank, file, doorbell_, std::move(listener_), neighbours, take, interrupted)
      .run(timeout_ms);
}

}  // namespace treering
