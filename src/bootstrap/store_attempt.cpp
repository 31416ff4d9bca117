#include "bootstrap/store_attempt.hpp"

#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <utility>

#include "bootstrap/store_wire.hpp"
#include "core/net_addresses.hpp"

namespace treering {

StoreAttempt::StoreAttempt(const sockaddr_storage& to, std::string place, const Secret& key)
    : fd_(::socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      place_(std::move(place)) {
  if (!fd_.valid()) {
    // A machine without IPv6 has no way to such an address.
    const int error = errno;
    status_ = system_error("cannot create a socket", error);
    end(error == EAFNOSUPPORT ? Found::kNothing : Found::kSystemError, std::strerror(error));
    return;
  }
  auto handshake = Handshake::start(Handshake::Role::kConnector, key, wire::kContext);
  if (!handshake.ok()) {
    status_ = handshake.status();
    end(Found::kSystemError, {});
    return;
  }
  handshake_ = std::move(handshake).value();
  output_ = handshake_->take_output();
  const int on = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to), length_of(to)) == 0) {
    on_connected(0);
  } else if (errno != EINPROGRESS) {
    on_connected(errno);
  }
}

short StoreAttempt::events() const {
  return static_cast<short>(connected_ && output_.empty() ? POLLIN : POLLIN | POLLOUT);
}

void StoreAttempt::on_connected(int error) {
  switch (error) {
    case 0:
      connected_ = true;
      return;
    case ECONNREFUSED:
      return end(Found::kNothing, "nobody listens");
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
    case EINVAL:  // a link-local address of an interface that is not here
    case ENETDOWN:
    case EACCES:  // a firewall of this machine
    case EPERM:
      return end(Found::kNothing, std::strerror(error));
    case ECONNRESET:
    case ECONNABORTED:
      // It had our connection, but ended before it saw it: the store of the program before,
      // perhaps.
      return end(Found::kBusy, "a listener that hangs up");
    case ETIMEDOUT:
      return end(Found::kBusy, "no answer");
    default:
      status_ = system_error("cannot connect to the store at " + place_, error);
      return end(Found::kSystemError, {});
  }
}

void StoreAttempt::advance() {
  if (!connected_) {
    pollfd ready{fd_.get(), POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) return;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    on_connected(error);
    if (found_ != Found::kGoing) return;
  }
  while (found_ == Found::kGoing) {
    while (!output_.empty()) {
      const ssize_t n = ::send(fd_.get(), output_.data(), output_.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n < 0) break;  // broken: the read below gets what was said before
      output_.erase(0, static_cast<std::size_t>(n));
    }
    if (handshake_->is_done()) {
      if (output_.empty()) end(Found::kStore, "the store");
      return;
    }
    if (!handshake_->status().ok()) return on_failed_handshake();
    // Never more than the handshake wants: what follows it is the store client's.
    char buffer[kHandshakeMaxMessageBytes];
    const ssize_t n = ::recv(fd_.get(), buffer, handshake_->wanted_bytes(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return end(Found::kBusy, "a listener that hangs up");
    handshake_->feed(buffer, static_cast<std::size_t>(n));
    output_ += handshake_->take_output();
  }
}

void StoreAttempt::on_failed_handshake() {
  const Status& why = handshake_->status();
  if (why.code() == Code::kUnsupported) {
    status_ = why.with_context("the store at " + place_);
    end(Found::kOther, why.message());
  } else if (handshake_->peer_is_treering()) {
    end(Found::kForeign, "the store of another job, or one with another secret");
  } else {
    end(Found::kForeign, "a listener that is no Treering store");
  }
}

void StoreAttempt::give_up() {
  if (found_ != Found::kGoing) return;
  const bool is_silent = connected_ && handshake_->wanted_bytes() == kHandshakeMaxMessageBytes &&
                         !handshake_->peer_is_treering();
  if (is_silent) return end(Found::kSilent, "a listener that says nothing");
  end(Found::kBusy, connected_ ? "a store that is slow to answer" : "no answer");
}

void StoreAttempt::end(Found found, std::string what) {
  found_ = found;
  what_ = std::move(what);
  if (found != Found::kStore) fd_.reset();
}

}  // namespace treering
