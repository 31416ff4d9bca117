#include "transports/tcp/meet.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <poll.h>
#include <utility>

#include "transports/tcp/knock.hpp"

namespace treering::tcp {
namespace {

constexpr int kLookMs = 50;                 // for who takes too long, and for an abort
constexpr std::size_t kMostStrangers = 64;  // accepted connections that have not proved the key

struct DoorplateHead {
  std::uint16_t port;
  std::uint16_t sockets;
  std::uint16_t addresses;
  std::uint16_t machine_bytes;
};

}  // namespace

std::string Doorplate::to_bytes() const {
  const DoorplateHead head{port, sockets, static_cast<std::uint16_t>(addresses.size()),
                           static_cast<std::uint16_t>(machine.size())};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += machine;
  for (const NetAddress& a : addresses) bytes.append(reinterpret_cast<const char*>(&a), sizeof a);
  return bytes;
}

Result<Doorplate> Doorplate::from_bytes(const std::string& bytes) {
  DoorplateHead head{};
  if (bytes.size() >= sizeof head) std::memcpy(&head, bytes.data(), sizeof head);
  if (bytes.size() != sizeof head + head.machine_bytes + head.addresses * sizeof(NetAddress))
    return unsupported("it runs another build of Treering");
  Doorplate plate;
  plate.port = head.port;
  plate.sockets = head.sockets;
  plate.machine = bytes.substr(sizeof head, head.machine_bytes);
  plate.addresses.resize(head.addresses);
  const char* at = bytes.data() + sizeof head + head.machine_bytes;
  for (NetAddress& a : plate.addresses) {
    std::memcpy(&a, at, sizeof a);
    a.interface.back() = '\0';
    at += sizeof a;
  }
  return plate;
}

Result<Listener> Listener::open(const std::string& interfaces, const PortRange& ports) {
  Listener listener;
  TR_ASSIGN_OR_RETURN(listener.doorplate_.addresses, own_addresses(interfaces));
  TR_ASSIGN_OR_RETURN(
      Listeners listeners,
      listen_at(interfaces.empty() ? std::vector<NetAddress>{} : listener.doorplate_.addresses,
                ports_of(ports)));
  listener.sockets_ = std::move(listeners.sockets);
  listener.doorplate_.port = listeners.port;
  return listener;
}

namespace {

// One call of meet().
class Meeting {
 public:
  Meeting(int rank, const Listener& listener, const std::vector<Remote>& remotes, const Secret& key,
          int timeout_ms, const Interrupted& interrupted)
      : rank_(rank),
        listener_(listener),
        key_(key),
        deadline_(Deadline::after_ms(timeout_ms)),
        interrupted_(interrupted) {
    for (const Remote& remote : remotes) {
      Guest guest{&remote, {}, {}, {}, 0};
      guest.sockets.rank = remote.rank;
      guest.wanted = 1 + std::min(remote.doorplate.sockets, listener.doorplate().sockets);
      guest.got.resize(guest.wanted);
      guests_.push_back(std::move(guest));
    }
  }

  Result<std::vector<PeerSockets>> run() {
    for (Guest& guest : guests_) {
      if (guest.remote->rank < rank_) knock_everywhere(guest);
    }
    for (;;) {
      TR_RETURN_IF_ERROR(check_reachable());
      if (all_here()) break;
      if (deadline_.expired()) return too_late();
      if (interrupted_ && interrupted_())
        return Status(
            Code::kAborted,
            "meeting other hosts was ended: by tr_comm_abort, a deadline, or a rank that gave up");
      wait();
      accept();
      for (std::size_t i = 0; i < knocks_.size(); ++i) {
        knocks_[i].advance();
        settle(i);
      }
      std::erase_if(knocks_, [](const Knock& k) { return k.state() == Knock::State::kFailed; });
    }
    std::vector<PeerSockets> all;
    for (Guest& guest : guests_) {
      guest.sockets.control = std::move(guest.got[0]);
      for (std::size_t i = 1; i < guest.got.size(); ++i)
        guest.sockets.data.push_back(std::move(guest.got[i]));
      all.push_back(std::move(guest.sockets));
    }
    return all;
  }

 private:
  struct Guest {
    const Remote* remote;
    PeerSockets sockets;
    std::vector<UniqueFd> got;  // by index; 0: control
    std::string tried;          // addresses that failed, with the reason
    std::size_t wanted;
    bool is_here() const {
      return std::all_of(got.begin(), got.end(), [](const UniqueFd& s) { return s.valid(); });
    }
  };

  Guest* guest_of(int rank) {
    const auto it = std::find_if(guests_.begin(), guests_.end(),
                                 [rank](const Guest& g) { return g.remote->rank == rank; });
    return it != guests_.end() ? &*it : nullptr;
  }

  void knock_everywhere(Guest& guest) {
    const Doorplate& plate = guest.remote->doorplate;
    const bool same_machine = plate.machine == listener_.doorplate().machine;
    for (const NetAddress& address : plate.addresses) {
      if (address.is_loopback && !same_machine) continue;
      for (const sockaddr_storage& to : endpoints(address, plate.port)) {
        knocks_.push_back(
            Knock::connect(rank_, guest.remote->rank, 0, to, to_string(address, plate.port), key_));
      }
    }
  }

  // What follows from the state that a knock has come to.
  void settle(std::size_t i) {
    Knock& knock = knocks_[i];
    if (knock.state() == Knock::State::kFailed && knock.is_connector()) {
      Guest& guest = *guest_of(knock.rank());
      const bool counts = knock.index() > 0 || !guest.got[0].valid();
      if (counts && knock.why() != kBeaten)
        guest.tried += (guest.tried.empty() ? "" : "; ") + knock.address() + ": " + knock.why();
      return;
    }
    if (knock.state() == Knock::State::kOffered) {
      Guest* const guest = guest_of(knock.rank());
      const auto index = static_cast<std::size_t>(knock.index());
      if (guest == nullptr || index >= guest->wanted || guest->got[index].valid() ||
          (!knock.is_connector() && knock.rank() < rank_)) {
        knock.fail("it is not wanted");
        return;
      }
      if (!knock.is_connector()) return;
      knock.choose();
    }
    if (knock.state() != Knock::State::kChosen) return;
    Guest& guest = *guest_of(knock.rank());
    const auto index = static_cast<std::size_t>(knock.index());
    if (knock.is_connector() && index == 0) {
      // The same way for data; the other addresses have lost.
      const sockaddr_storage to = knock.to();
      const std::string address = knock.address();
      guest.sockets.route = "at " + address;
      guest.got[0] = knock.take_socket();
      for (Knock& other : knocks_) {
        if (other.is_connector() && other.rank() == guest.remote->rank) other.fail(kBeaten);
      }
      for (std::size_t k = 1; k < guest.wanted; ++k) {
        knocks_.push_back(
            Knock::connect(rank_, guest.remote->rank, static_cast<int>(k), to, address, key_));
      }
      return;
    }
    if (!guest.got[index].valid()) guest.got[index] = knock.take_socket();
    if (!knock.is_connector()) guest.sockets.route = route_of(guest.got[index].get());
    knock.fail(kBeaten);  // its socket is taken
  }

  static std::string route_of(int socket) {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    NetAddress peer;
    if (::getpeername(socket, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return "?";
    peer.family = storage.ss_family;
    std::uint16_t port = 0;
    if (storage.ss_family == AF_INET) {
      sockaddr_in in;
      std::memcpy(&in, &storage, sizeof in);
      std::memcpy(peer.ip.data(), &in.sin_addr, sizeof in.sin_addr);
      port = ntohs(in.sin_port);
    } else {
      sockaddr_in6 in;
      std::memcpy(&in, &storage, sizeof in);
      std::memcpy(peer.ip.data(), &in.sin6_addr, sizeof in.sin6_addr);
      port = ntohs(in.sin6_port);
    }
    std::strncpy(peer.interface.data(), "it connected", peer.interface.size() - 1);
    return "at " + to_string(peer, port);
  }

  bool all_here() const {
    return std::all_of(guests_.begin(), guests_.end(), [](const Guest& g) { return g.is_here(); });
  }

  std::string unreachable(const Guest& guest) const {
    return "rank " + std::to_string(rank_) + " cannot reach rank " +
           std::to_string(guest.remote->rank) + "; tried " +
           (guest.tried.empty() ? "nothing: it has no address that leads to another machine"
                                : guest.tried);
  }

  // A rank that this one must connect to, and no address is left.
  Status check_reachable() const {
    for (const Guest& guest : guests_) {
      if (guest.remote->rank > rank_ || guest.is_here()) continue;
      const bool tries = std::any_of(knocks_.begin(), knocks_.end(), [&](const Knock& k) {
        return k.is_connector() && k.rank() == guest.remote->rank;
      });
      if (!tries)
        return remote_error(unreachable(guest) +
                            "; is a firewall in between? TR_INTERFACE chooses interfaces");
    }
    return {};
  }

  Status too_late() {
    for (Knock& knock : knocks_) {
      if (!knock.is_connector()) continue;
      const bool connecting = knock.state() == Knock::State::kConnecting;
      knock.fail(connecting ? "no answer" : "it did not prove that it is this job's");
    }
    for (std::size_t i = 0; i < knocks_.size(); ++i) settle(i);
    for (const bool own : {true, false}) {
      for (const Guest& guest : guests_) {
        if (guest.is_here() || (guest.remote->rank < rank_) != own) continue;
        if (own) return Status(Code::kTimeout, unreachable(guest));
        return Status(Code::kTimeout, "rank " + std::to_string(guest.remote->rank) +
                                          " did not connect to rank " + std::to_string(rank_));
      }
    }
    return internal_error("a meeting without anybody missing");
  }

  void wait() {
    std::vector<pollfd> entries;
    for (const UniqueFd& socket : listener_.sockets()) entries.push_back({socket.get(), POLLIN, 0});
    for (const Knock& knock : knocks_) entries.push_back({knock.fd(), knock.events(), 0});
    // Now and then in any case, for those who take too long.
    (void)::poll(entries.data(), entries.size(), std::min(deadline_.poll_ms(), kLookMs));
  }

  void accept() {
    for (const UniqueFd& listening : listener_.sockets()) {
      for (;;) {
        UniqueFd socket(::accept4(listening.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket.valid()) break;
        knocks_.push_back(Knock::accept(rank_, std::move(socket), key_));
      }
    }
    std::size_t strangers = 0;
    for (auto it = knocks_.rbegin(); it != knocks_.rend(); ++it) {
      if (it->is_connector() || it->state() > Knock::State::kSaying) continue;
      if (it->deadline().expired() || ++strangers > kMostStrangers + guests_.size() * 4)
        it->fail("it did not prove the key");
    }
  }

  static constexpr const char* kBeaten = "another way was chosen";
  int rank_;
  const Listener& listener_;
  Secret key_;
  Deadline deadline_;
  const Interrupted& interrupted_;
  std::vector<Guest> guests_;
  std::vector<Knock> knocks_;
};

}  // namespace

Result<std::vector<PeerSockets>> meet(int rank, const Listener& listener,
                                      const std::vector<Remote>& remotes, const Secret& key,
                                      int timeout_ms, const Interrupted& interrupted) {
  return Meeting(rank, listener, remotes, key, timeout_ms, interrupted).run();
}

}  // namespace treering::tcp
