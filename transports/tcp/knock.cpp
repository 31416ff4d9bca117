#include "transports/tcp/knock.hpp"

#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <utility>

#include "core/net_addresses.hpp"

namespace treering::tcp {
namespace {

constexpr int kProvingMs = 5000;  // for one who has connected to prove the key and be chosen
constexpr char kWelcome = 'W';
constexpr char kChoice = 'C';

std::string context_of(int acceptor) { return "treering tcp to rank " + std::to_string(acceptor); }

// No connection waits to fill a packet; buffers are left to the kernel, which tunes them. A peer's
// machine that is silent for half a minute counts as lost.
void set_options(int socket) {
  const auto set = [&](int level, int name, int value) {
    (void)::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

Knock Knock::connect(int own_rank, int rank, int index, const sockaddr_storage& to,
                     std::string address, const Secret& key) {
  Knock knock(true, own_rank);
  knock.rank_ = rank;
  knock.index_ = index;
  knock.to_ = to;
  knock.address_ = std::move(address);
  Result<Handshake> handshake =
      Handshake::start(Handshake::Role::kConnector, key, context_of(rank));
  if (!handshake.ok()) {
    knock.fail(handshake.status().message());
    return knock;
  }
  knock.handshake_ = std::make_unique<Handshake>(std::move(handshake).value());
  knock.socket_.reset(::socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!knock.socket_.valid()) {
    knock.fail(std::strerror(errno));
    return knock;
  }
  set_options(knock.fd());
  if (::connect(knock.fd(), reinterpret_cast<const sockaddr*>(&to), length_of(to)) != 0 &&
      errno != EINPROGRESS)
    knock.fail(std::strerror(errno));
  return knock;
}

Knock Knock::accept(int own_rank, UniqueFd socket, const Secret& key) {
  Knock knock(false, own_rank);
  knock.socket_ = std::move(socket);
  knock.deadline_ = Deadline::after_ms(kProvingMs);
  set_options(knock.fd());
  Result<Handshake> handshake =
      Handshake::start(Handshake::Role::kAcceptor, key, context_of(own_rank));
  if (!handshake.ok()) {
    knock.fail(handshake.status().message());
    return knock;
  }
  knock.handshake_ = std::make_unique<Handshake>(std::move(handshake).value());
  knock.state_ = State::kProving;
  return knock;
}

short Knock::events() const {
  if (state_ == State::kConnecting || !out_.empty()) return POLLIN | POLLOUT;
  return POLLIN;
}

void Knock::fail(std::string why) {
  if (state_ == State::kFailed) return;
  state_ = State::kFailed;
  why_ = std::move(why);
  socket_.reset();
}

void Knock::write(const void* bytes, std::size_t count) {
  out_.append(static_cast<const char*>(bytes), count);
}

// Never beyond `count`: what follows belongs to the next state, or to the connection's owner.
bool Knock::read(void* bytes, std::size_t count) {
  while (in_.size() < count) {
    char buffer[64];
    const std::size_t want = std::min(sizeof buffer, count - in_.size());
    const ssize_t got = ::recv(fd(), buffer, want, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      fail(got == 0 ? "it closed the connection" : std::strerror(errno));
      return false;
    }
    in_.append(buffer, static_cast<std::size_t>(got));
  }
  std::memcpy(bytes, in_.data(), count);
  in_.clear();
  return true;
}

bool Knock::prove() {
  out_ += handshake_->take_output();
  const std::size_t wanted = handshake_->wanted_bytes();
  if (handshake_->is_going() && wanted > 0) {
    std::string bytes(wanted, '\0');
    if (!read(bytes.data(), wanted)) return false;
    handshake_->feed(bytes.data(), wanted);
    out_ += handshake_->take_output();
  }
  if (!handshake_->status().ok()) {
    fail(handshake_->status().message());
    return false;
  }
  if (!handshake_->is_done()) return true;
  state_ = State::kSaying;
  if (connector_) {
    const Hello hello{static_cast<std::uint32_t>(own_rank_), static_cast<std::uint32_t>(index_)};
    write(&hello, sizeof hello);
  }
  return true;
}

// One step; false if it must wait.
bool Knock::step() {
  switch (state_) {
    case State::kConnecting: {
      pollfd entry{fd(), POLLOUT, 0};
      if (::poll(&entry, 1, 0) <= 0) return false;
      int error = 0;
      socklen_t length = sizeof error;
      (void)::getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &length);
      if (error != 0) {
        fail(std::strerror(error));
        return false;
      }
      state_ = State::kProving;
      return true;
    }
    case State::kProving:
      return prove();
    case State::kSaying: {
      if (connector_) {
        char answer = 0;
        if (!read(&answer, 1)) return false;
        if (answer != kWelcome) {
          fail("it answered with garbage");
          return false;
        }
      } else {
        Hello hello;
        if (!read(&hello, sizeof hello)) return false;
        rank_ = static_cast<int>(hello.rank);
        index_ = static_cast<int>(hello.index);
        write(&kWelcome, 1);
      }
      state_ = State::kOffered;
      return true;
    }
    case State::kOffered: {
      char choice = 0;
      if (connector_ || !read(&choice, 1)) return false;
      if (choice != kChoice) {
        fail("it chose with garbage");
        return false;
      }
      state_ = State::kChosen;
      return false;
    }
    case State::kChosen:
    case State::kFailed:
      return false;
  }
  return false;
}

void Knock::advance() {
  for (bool go_on = true; go_on && state_ != State::kFailed;) {
    go_on = step();
    while (!out_.empty() && state_ != State::kFailed && state_ != State::kConnecting) {
      const ssize_t sent = ::send(fd(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) break;
      if (sent < 0) {
        fail(std::strerror(errno));
        break;
      }
      out_.erase(0, static_cast<std::size_t>(sent));
    }
  }
}

void Knock::choose() {
  write(&kChoice, 1);
  state_ = State::kChosen;
  advance();
}

}  // namespace treering::tcp
