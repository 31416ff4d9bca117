// The serving thread: accepts connections, checks what they say first, and moves messages between
// them and their groups (store_group.hpp).
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <unordered_map>

#include "bootstrap/store.hpp"
#include "bootstrap/store_connection.hpp"
#include "bootstrap/store_group.hpp"
#include "bootstrap/store_wire.hpp"
#include "core/unique_fd.hpp"

namespace treering {
namespace {

// Connections that have proved nothing yet; beyond it the oldest is dropped (a rank tries again).
constexpr std::size_t kMaxStrangers = 512;
constexpr std::size_t kMaxMessageBytes =
    sizeof(wire::FrameHead) + sizeof(wire::GatherHead) + kMaxBlobBytes;
// Per round of the loop, so that a flood of connections cannot keep it from serving those it has.
constexpr int kMaxAcceptsInARow = 32;
constexpr int kFullPauseMs = 50;  // out of descriptors: let some close before the next accept
constexpr int kFullMs = 2000;     // so long out of descriptors without a rank that joins: give up

}  // namespace

// What the handles and the thread share. `ended` is set, and the port closed, under the mutex: who
// sees it may listen on the same port at once.
struct StoreServer::Shared {
  std::mutex mutex;
  std::map<std::uint64_t, Deadline> promised;
  bool ended = false;
  Listeners listeners;

  // The serving thread's own.
  Secret key{};
  UniqueFd epoll;
  std::unordered_map<int, std::unique_ptr<StoreConnection>> connections;
  std::map<std::uint64_t, StoreGroup> groups;
  Deadline listen_again = Deadline::never();
  Deadline full = Deadline::never();  // runs while descriptors lack and no rank joins
  int full_error = 0;
  Deadline promises_end = Deadline::never();

  void serve();
  bool end_if_done();
  Deadline next_wake() const;
  const UniqueFd* listener_of(const void* event) const;
  void accept_some(const UniqueFd& listener);
  bool drop_oldest_stranger(std::size_t keep);
  void on_input(StoreConnection& connection);
  void greet(StoreConnection& connection);
  void on_message(StoreConnection& connection, wire::Kind kind, std::string_view body);
  void refuse(StoreConnection& connection, const Status& status);
  void close(StoreConnection& connection, bool with_goodbye);
  void check_time();
  void flush_all();
  void remove_dead();
  void watch_listener(bool on);
};

Result<std::unique_ptr<StoreServer>> StoreServer::start(const Secret& key,
                                                        const std::vector<NetAddress>& only,
                                                        const std::vector<std::uint16_t>& ports,
                                                        std::uint64_t first_group,
                                                        Deadline promise) {
  auto shared = std::make_shared<Shared>();
  shared->key = key;
  shared->promised.emplace(first_group, promise);
  auto listeners = listen_at(only, ports);
  if (!listeners.ok()) {
    const Status& status = listeners.status();
    return Status(status.code(), "the store: " + status.message() +
                                     (ports.size() > 1 ? "" : " (TR_STORE_PORT sets another)"));
  }
  shared->listeners = std::move(listeners).value();
  shared->epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!shared->epoll.valid()) return system_error("cannot create the store's epoll", errno);
  for (UniqueFd& listener : shared->listeners.sockets) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &listener;
    if (::epoll_ctl(shared->epoll.get(), EPOLL_CTL_ADD, listener.get(), &event) != 0) {
      return system_error("cannot watch the store's port", errno);
    }
  }

  // The thread takes no signal: those are the program's, for its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto* argument = new std::shared_ptr<Shared>(shared);
  pthread_t thread;
  const int error = pthread_create(
      &thread, nullptr,
      [](void* raw) -> void* {
        const std::unique_ptr<std::shared_ptr<Shared>> owned(
            static_cast<std::shared_ptr<Shared>*>(raw));
        (*owned)->serve();
        return nullptr;
      },
      argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    delete argument;
    return system_error("cannot start the store's thread", error);
  }
  pthread_detach(thread);
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(shared)));
}

StoreServer::StoreServer(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
StoreServer::~StoreServer() = default;
std::uint16_t StoreServer::port() const { return shared_->listeners.port; }

bool StoreServer::promise(std::uint64_t group, Deadline promise) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->ended) return false;
  shared_->promised.emplace(group, promise);
  return true;
}

void StoreServer::Shared::serve() {
  while (!end_if_done()) {
    epoll_event events[64];
    const int n = ::epoll_wait(epoll.get(), events, 64, next_wake().poll_ms());
    for (int i = 0; i < n; ++i) {
      if (const UniqueFd* listener = listener_of(events[i].data.ptr)) {
        accept_some(*listener);
        continue;
      }
      auto* connection = static_cast<StoreConnection*>(events[i].data.ptr);
      if (!connection->is_dead && (events[i].events & ~EPOLLOUT) != 0) {
        on_input(*connection);
      }
    }
    check_time();
    flush_all();
    remove_dead();
    std::erase_if(groups, [](const auto& entry) { return entry.second.is_over(); });
  }
}

void StoreServer::Shared::remove_dead() {
  std::erase_if(connections, [this](const auto& entry) {
    if (!entry.second->is_dead) return false;
    // Closing does not end the registration if a forked child holds the socket too, and its events
    // would point to a connection that is no more.
    ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, entry.first, nullptr);
    return true;
  });
}

bool StoreServer::Shared::end_if_done() {
  const std::lock_guard lock(mutex);
  std::erase_if(promised, [](const auto& entry) { return entry.second.expired(); });
  promises_end = Deadline::never();
  for (const auto& [group, end] : promised) promises_end = Deadline::earlier(promises_end, end);
  if (!promised.empty() || !groups.empty()) return false;
  for (const auto& [fd, connection] : connections) {
    if (connection->is_leaving) return false;
  }
  ended = true;
  for (UniqueFd& listener : listeners.sockets) {
    ::shutdown(listener.get(), SHUT_RDWR);  // for a forked child's copy of it too
    listener.reset();
  }
  connections.clear();
  return true;
}

Deadline StoreServer::Shared::next_wake() const {
  Deadline wake = Deadline::earlier(Deadline::earlier(listen_again, full), promises_end);
  for (const auto& [id, group] : groups) wake = Deadline::earlier(wake, group.next_check());
  for (const auto& [fd, connection] : connections) {
    if (connection->group == nullptr) wake = Deadline::earlier(wake, connection->greeting);
  }
  return wake;
}

void StoreServer::Shared::watch_listener(bool on) {
  for (UniqueFd& listener : listeners.sockets) {
    epoll_event event{};
    event.events = on ? static_cast<std::uint32_t>(EPOLLIN) : 0;
    event.data.ptr = &listener;
    ::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, listener.get(), &event);
  }
  listen_again = on ? Deadline::never() : Deadline::after_ms(kFullPauseMs);
}

const UniqueFd* StoreServer::Shared::listener_of(const void* event) const {
  for (const UniqueFd& listener : listeners.sockets) {
    if (event == &listener) return &listener;
  }
  return nullptr;
}

void StoreServer::Shared::accept_some(const UniqueFd& listener) {
  for (int i = 0; i < kMaxAcceptsInARow; ++i) {
    UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      const int error = errno;
      if (error == EINTR || error == ECONNABORTED) continue;
      const bool is_full =
          error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
      // A dropped stranger's descriptor is free after this batch of events.
      if (is_full) {
        if (full_error == 0) full = Deadline::after_ms(kFullMs);
        full_error = error;
        if (!drop_oldest_stranger(0)) watch_listener(false);
      }
      return;
    }
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto handshake = Handshake::start(Handshake::Role::kAcceptor, key, wire::kContext);
    if (!handshake.ok()) return;
    auto connection = std::make_unique<StoreConnection>(std::move(fd), std::move(handshake).value(),
                                                        Deadline::after_ms(kGreetingMs));
    connection->queue(std::make_shared<const std::string>(connection->handshake.take_output()));
    if (!connection->flush()) continue;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.ptr = connection.get();
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, connection->fd(), &event) != 0) continue;
    drop_oldest_stranger(kMaxStrangers - 1);
    connections.emplace(connection->fd(), std::move(connection));
  }
}

// Drops a stranger if there are more than `keep`: of those that have not said a greeting of ours,
// or else of all, the one that has been there longest.
bool StoreServer::Shared::drop_oldest_stranger(std::size_t keep) {
  StoreConnection* oldest = nullptr;
  std::size_t strangers = 0;
  for (const auto& [fd, connection] : connections) {
    if (connection->group != nullptr || connection->is_leaving || connection->is_dead) continue;
    ++strangers;
    const bool has_greeted = connection->handshake.peer_is_treering();
    const bool oldest_has = oldest != nullptr && oldest->handshake.peer_is_treering();
    if (oldest == nullptr || (oldest_has && !has_greeted) ||
        (oldest_has == has_greeted &&
         connection->greeting.remaining() < oldest->greeting.remaining())) {
      oldest = connection.get();
    }
  }
  if (strangers <= keep) return false;
  oldest->is_dead = true;
  return true;
}

void StoreServer::Shared::on_input(StoreConnection& connection) {
  const bool is_stranger = connection.group == nullptr;
  const bool is_open =
      connection.read(is_stranger ? kHandshakeBytes + sizeof(wire::Hello) : kMaxMessageBytes);
  if (is_stranger && !connection.is_leaving) greet(connection);
  std::string& input = connection.input();
  while (connection.group != nullptr && input.size() >= sizeof(wire::FrameHead)) {
    wire::FrameHead head;
    std::memcpy(&head, input.data(), sizeof head);
    if (head.bytes > kMaxMessageBytes - sizeof head) return close(connection, false);
    if (input.size() < sizeof head + head.bytes) break;
    on_message(connection, head.kind, std::string_view(input).substr(sizeof head, head.bytes));
    input.erase(0, sizeof head + head.bytes);
  }
  if (!is_open) close(connection, false);
}

void StoreServer::Shared::greet(StoreConnection& connection) {
  std::string& input = connection.input();
  Handshake& handshake = connection.handshake;
  if (handshake.is_going()) {
    input.erase(0, handshake.feed(input.data(), input.size()));
    if (std::string output = handshake.take_output(); !output.empty()) {
      connection.queue(std::make_shared<const std::string>(std::move(output)));
    }
    if (handshake.is_going()) return;
  }
  if (!handshake.is_done()) {
    // Only one that speaks our protocol gets an answer.
    connection.is_leaving = handshake.peer_is_treering() && connection.has_output();
    connection.is_dead = !connection.is_leaving;
    return;
  }
  wire::Hello hello;
  if (input.size() < sizeof hello) return;
  std::memcpy(&hello, input.data(), sizeof hello);
  input.erase(0, sizeof hello);
  if (hello.version != wire::kVersion) {
    return refuse(connection,
                  unsupported("the store speaks version " + std::to_string(wire::kVersion) +
                              " of its protocol, rank " + std::to_string(hello.rank) + " version " +
                              std::to_string(hello.version) + ": use one version in all ranks"));
  }
  if (hello.size < 1 || hello.size > kMaxRanks || hello.rank < 0 || hello.rank >= hello.size) {
    connection.is_dead = true;  // join_store lets no such rank come here
    return;
  }

  StoreGroup& group =
      groups.try_emplace(hello.group, hello.group, hello.size, hello.rank).first->second;
  {
    const std::lock_guard lock(mutex);
    promised.erase(hello.group);
  }
  bool come_back = false;
  const Status status = group.check(hello, come_back);
  if (come_back) {
    connection.is_dead = true;
  } else if (!status.ok()) {
    refuse(connection, status);
  } else {
    group.admit(hello, connection);
    full = Deadline::never();
    full_error = 0;
    connection.queue(std::make_shared<const std::string>(wire::frame(wire::Kind::kWelcome, {})));
  }
}

void StoreServer::Shared::on_message(StoreConnection& connection, wire::Kind kind,
                                     std::string_view body) {
  wire::GatherHead head;
  if (kind == wire::Kind::kGather && body.size() >= sizeof head) {
    std::memcpy(&head, body.data(), sizeof head);
    connection.group->gather(connection.rank, head, body.substr(sizeof head));
  } else {
    close(connection, kind == wire::Kind::kBye);
  }
}

void StoreServer::Shared::refuse(StoreConnection& connection, const Status& status) {
  connection.queue(std::make_shared<const std::string>(
      wire::frame(wire::Kind::kError, wire::error_body(status))));
  connection.is_leaving = true;
}

// The descriptor stays open until the batch of events is done, so that its number stays ours.
void StoreServer::Shared::close(StoreConnection& connection, bool with_goodbye) {
  connection.is_dead = true;
  if (connection.group == nullptr) return;
  connection.group->leave(connection.rank, with_goodbye);
  connection.group = nullptr;
}

void StoreServer::Shared::check_time() {
  for (auto& [id, group] : groups) group.check_time();
  for (const auto& [fd, connection] : connections) {
    if (connection->group == nullptr && connection->greeting.expired()) connection->is_dead = true;
  }
  if (listen_again.expired()) watch_listener(true);
  if (full.expired()) {
    for (auto& [id, group] : groups) {
      if (!group.all_have_come()) {
        group.fail(system_error("the store's process (" + std::to_string(::getpid()) +
                                    ") cannot accept the connections of all ranks",
                                full_error));
      }
    }
    full = Deadline::never();
    full_error = 0;
  }
}

void StoreServer::Shared::flush_all() {
  // Closing a connection may fail its group, which queues more.
  for (bool again = true; again;) {
    again = false;
    for (auto& [id, group] : groups) group.release_replies_here();
    for (const auto& [fd, connection] : connections) {
      if (connection->is_dead || !connection->has_output()) continue;
      if (!connection->flush()) {
        close(*connection, false);
        again = true;
      } else if (!connection->has_output()) {
        again = true;
        connection->is_dead = connection->is_leaving;
      }
      epoll_event event{};
      event.events = EPOLLIN | EPOLLRDHUP;
      if (connection->has_output()) event.events |= EPOLLOUT;
      event.data.ptr = connection.get();
      ::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, connection->fd(), &event);
    }
  }
}

}  // namespace treering
