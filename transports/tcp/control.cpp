#include "transports/tcp/control.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <sys/socket.h>
#include <utility>

#include "transports/board_copy.hpp"

namespace treering::tcp {

void Control::close(Status error) {
  closed_ = true;
  error_ = std::move(error);
  out_.clear();
  wants_push_ = wants_answer_ = false;
}

void Control::flush() {
  while (!closed_ && !is_flushed()) {
    if (out_.empty()) {
      sent_ = 0;
      if (std::exchange(wants_push_, false)) {
        const Head head{kBoard, sizeof(Board)};
        const auto image = std::make_unique<Board>();
        copy_board(own_, *image);
        out_.append(reinterpret_cast<const char*>(&head), sizeof head);
        out_.append(reinterpret_cast<const char*>(image.get()), sizeof(Board));
      }
      if (std::exchange(wants_answer_, false)) {
        const Head head{kQuestion, 0};
        out_.append(reinterpret_cast<const char*>(&head), sizeof head);
      }
    }
    const ssize_t sent =
        ::send(fd(), out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) out_.clear();  // receive() will see the end, after what came before it
      return;
    }
    sent_ += static_cast<std::size_t>(sent);
    if (sent_ == out_.size()) out_.clear();
  }
}

Status Control::parse(bool* asked) {
  std::size_t at = 0;
  while (received_ - at >= sizeof(Head)) {
    Head head;
    std::memcpy(&head, &in_[at], sizeof head);
    if (!(head.kind == kBoard && head.bytes == sizeof(Board)) &&
        !(head.kind == kQuestion && head.bytes == 0))
      return remote_error("its control connection carries what this library does not send");
    if (received_ - at - sizeof head < head.bytes) break;
    if (head.kind == kBoard) {
      const auto image = std::make_unique<Board>();
      std::memcpy(static_cast<void*>(image.get()), &in_[at + sizeof head], sizeof(Board));
      image->cause[kCauseBytes - 1] = '\0';
      copy_board(*image, mirror_);
    } else {
      *asked = true;
    }
    at += sizeof head + head.bytes;
  }
  std::memmove(in_.data(), in_.data() + at, received_ - at);
  received_ -= at;
  return {};
}

bool Control::receive() {
  bool asked = false;
  while (!closed_) {
    const ssize_t got = ::recv(fd(), in_.data() + received_, in_.size() - received_, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) break;
      // A reset is an end, too: the peer's machine says that nobody is there any more.
      close(errno == ECONNRESET ? Status{} : system_error("the connection broke", errno));
      break;
    }
    if (got == 0) {
      close({});
      break;
    }
    heard_ = Clock::now();
    received_ += static_cast<std::size_t>(got);
    if (Status status = parse(&asked); !status.ok()) close(std::move(status));
  }
  return asked;
}

}  // namespace treering::tcp
