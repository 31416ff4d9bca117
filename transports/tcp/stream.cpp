#include "transports/tcp/stream.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <utility>

namespace treering::tcp {

void Stream::close(Status error) {
  closed_ = true;
  error_ = std::move(error);
  first_ = end_ = 0;
}

void Stream::fail(const char* what, int error) {
  if (error == ECONNRESET || error == EPIPE) {
    reset_ = true;
  } else if (error_.ok()) {
    error_ = system_error(what, error);
  }
}

void Stream::push(const void* bytes, std::size_t count) {
  if (count > 0) parts_[static_cast<std::size_t>(end_++)] = {const_cast<void*>(bytes), count};
}

bool Stream::fill(PeerLinks& links, bool any_credit) {
  first_ = end_ = 0;
  std::size_t count = 0, bytes = 0;
  const std::byte* payload = nullptr;
  while (count < kBatch - kLinks && bytes < kBatchBytes &&
         links.take_message(&frames_[count], &payload)) {
    push(&frames_[count], sizeof(Frame));
    push(payload, frames_[count].bytes);
    bytes += frames_[count++].bytes;
  }
  // Beside messages a credit costs nothing.
  while (count < kBatch && links.take_credit(&frames_[count], any_credit || bytes > 0)) {
    push(&frames_[count++], sizeof(Frame));
  }
  return end_ > 0;
}

// True: all is sent. *moved: something is.
bool Stream::flush(bool* moved) {
  while (first_ < end_) {
    msghdr message{};
    message.msg_iov = &parts_[static_cast<std::size_t>(first_)];
    message.msg_iovlen = static_cast<std::size_t>(end_ - first_);
    const ssize_t sent = ::sendmsg(fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return false;
      // What the peer had sent before may still be read.
      first_ = end_ = 0;
      fail("sending failed", errno);
      return false;
    }
    *moved = true;
    auto left = static_cast<std::size_t>(sent);
    while (first_ < end_ && left >= parts_[static_cast<std::size_t>(first_)].iov_len) {
      left -= parts_[static_cast<std::size_t>(first_++)].iov_len;
    }
    if (left > 0) {
      iovec& part = parts_[static_cast<std::size_t>(first_)];
      part.iov_base = static_cast<std::byte*>(part.iov_base) + left;
      part.iov_len -= left;
    }
  }
  return true;
}

bool Stream::send(PeerLinks& links, bool any_credit) {
  bool moved = false;
  while (may_send()) {
    if (is_flushed() && !fill(links, any_credit)) break;
    if (!flush(&moved)) break;
  }
  return moved;
}

Status Stream::finish(PeerLinks& links) {
  in_frame_ = false;
  return links.complete(frame_, payload_ - frame_.bytes);
}

// Takes what is staged: frames, and payload up to the end of a message.
Status Stream::parse(PeerLinks& links) {
  std::size_t at = 0;
  for (;;) {
    if (!in_frame_) {
      if (staged_ - at < sizeof(Frame)) break;
      std::memcpy(&frame_, &stage_[at], sizeof(Frame));
      at += sizeof(Frame);
      TR_RETURN_IF_ERROR(links.begin(frame_, &payload_));
      in_frame_ = true;
      missing_ = payload_ != nullptr ? frame_.bytes : 0;
    }
    const std::size_t count = std::min(missing_, staged_ - at);
    if (count > 0) {
      std::memcpy(payload_, &stage_[at], count);
      payload_ += count;
      missing_ -= count;
      at += count;
    }
    if (missing_ > 0) break;
    TR_RETURN_IF_ERROR(finish(links));
  }
  std::memmove(stage_.data(), &stage_[0] + at, staged_ - at);
  staged_ -= at;
  return {};
}

bool Stream::receive(PeerLinks& links) {
  constexpr int kMostReads = 4;
  bool moved = false;
  for (int i = 0; i < kMostReads && !closed_; ++i) {
    iovec parts[2];
    int count = 0;
    if (missing_ > 0) parts[count++] = {payload_, missing_};
    parts[count++] = {stage_.data() + staged_, kStageBytes - staged_};
    const std::size_t room = missing_ + kStageBytes - staged_;
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<std::size_t>(count);
    const ssize_t got = ::recvmsg(fd(), &message, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return moved;
      fail("receiving failed", errno);
      close(error_);
      return moved;
    }
    if (got == 0) {
      close({});
      return moved;
    }
    moved = true;
    const std::size_t direct = std::min(missing_, static_cast<std::size_t>(got));
    payload_ += direct;
    missing_ -= direct;
    staged_ += static_cast<std::size_t>(got) - direct;
    Status status;
    if (in_frame_ && missing_ == 0) status = finish(links);
    if (status.ok() && !in_frame_) status = parse(links);
    if (!status.ok()) close(std::move(status));
    // All that there was: asking again would only cost a call.
    if (static_cast<std::size_t>(got) < room) return moved;
  }
  return moved;
}

}  // namespace treering::tcp
