#include "bootstrap/store_connection.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

namespace treering {

StoreConnection::~StoreConnection() { ::shutdown(fd_.get(), SHUT_RDWR); }

bool StoreConnection::read(std::size_t limit) {
  while (input_.size() < limit) {
    char buffer[16 * 1024];
    const std::size_t room = std::min(sizeof buffer, limit - input_.size());
    const ssize_t n = ::recv(fd_.get(), buffer, room, 0);
    if (n == 0) return false;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    input_.append(buffer, static_cast<std::size_t>(n));
  }
  return true;
}

bool StoreConnection::flush() {
  while (!output_.empty()) {
    const std::string& text = *output_.front();
    const ssize_t n =
        ::send(fd_.get(), text.data() + sent_, text.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    sent_ += static_cast<std::size_t>(n);
    if (sent_ == text.size()) {
      output_.pop_front();
      sent_ = 0;
    }
  }
  return true;
}

}  // namespace treering
