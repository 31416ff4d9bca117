#include "cli/run_output.hpp"

#include <algorithm>
#include <cerrno>
#include <limits.h>
#include <unistd.h>

namespace treering::run {

bool Sink::write_some() {
  // A pipe that is ready takes PIPE_BUF bytes without blocking, perhaps no more.
  const std::size_t bytes = std::min<std::size_t>(waiting_bytes(), PIPE_BUF);
  const ssize_t n = ::write(fd_, queue_.data() + sent_, bytes);
  if (n >= 0) {
    sent_ += static_cast<std::size_t>(n);
  } else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
    is_broken_ = true;
    sent_ = queue_.size();
  }
  if (sent_ == queue_.size() || sent_ > kFullBytes) {
    queue_.erase(0, sent_);
    sent_ = 0;
  }
  return !is_broken_;
}

Source::Source(UniqueFd fd, int rank, Sink& sink)
    : fd_(std::move(fd)), prefix_("[" + std::to_string(rank) + "] "), sink_(&sink) {}

void Source::read_some() {
  char buffer[64 * 1024];
  const ssize_t n = ::read(fd_.get(), buffer, sizeof buffer);
  if (n < 0 && errno == EINTR) return;
  if (n <= 0) return close();
  std::string_view rest(buffer, static_cast<std::size_t>(n));
  for (std::size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
    line_.append(rest.substr(0, end));
    emit(line_);
    line_.clear();
    rest.remove_prefix(end + 1);
  }
  line_.append(rest);
  if (line_.size() >= kMaxLineBytes) {
    emit(line_);
    line_.clear();
  }
}

void Source::close() {
  if (!line_.empty()) emit(line_);
  line_.clear();
  fd_.reset();
}

void Source::emit(std::string_view line) {
  sink_->add(prefix_);
  sink_->add(line);
  sink_->add("\n");
}

}  // namespace treering::run
