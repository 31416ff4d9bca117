#include "perf/wire.hpp"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace treering::perf {
namespace {

// The length that names the socket exactly: the abstract namespace does not end a name at a zero
// byte.
socklen_t abstract_address(const std::string& name, sockaddr_un* address) {
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  const std::size_t length = name.copy(address->sun_path + 1, sizeof address->sun_path - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

Failure open_socket(Fd* out) {
  *out = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!out->is_open()) return with_errno("cannot open a Unix socket", errno);
  return std::nullopt;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

Failure listen_on(const std::string& name, Fd* out) {
  if (Failure failure = open_socket(out)) return failure;
  sockaddr_un address;
  const socklen_t length = abstract_address(name, &address);
  if (::bind(out->fd(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(out->fd(), SOMAXCONN) != 0) {
    return with_errno("cannot listen on the abstract socket " + name, errno);
  }
  return std::nullopt;
}

Failure connect_to(const std::string& name, Fd* out) {
  if (Failure failure = open_socket(out)) return failure;
  sockaddr_un address;
  const socklen_t length = abstract_address(name, &address);
  if (::connect(out->fd(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    return with_errno("cannot connect to the abstract socket " + name, errno);
  }
  return std::nullopt;
}

Failure send_message(const Fd& socket, const void* message, std::size_t bytes) {
  ssize_t sent;
  do {
    sent = ::send(socket.fd(), message, bytes, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return with_errno("cannot send on the control socket", errno);
  return std::nullopt;
}

Failure receive_message(const Fd& socket, void* message, std::size_t bytes, bool* closed) {
  if (closed != nullptr) *closed = false;
  ssize_t got;
  do {
    got = ::recv(socket.fd(), message, bytes, 0);
  } while (got < 0 && errno == EINTR);
  if (got == 0 || (got < 0 && errno == ECONNRESET)) {
    if (closed != nullptr) *closed = true;
    return "the control socket was closed";
  }
  if (got < 0) return with_errno("cannot receive on the control socket", errno);
  if (static_cast<std::size_t>(got) != bytes) return "a control message has an unexpected length";
  return std::nullopt;
}

}  // namespace treering::perf
