#include "core/status.hpp"

#include <cerrno>
#include <cstring>
#include <sys/resource.h>

namespace treering {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "success";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kInvalidUsage:
      return "invalid usage";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kSystem:
      return "system error";
    case Code::kRemote:
      return "remote error";
    case Code::kTimeout:
      return "timeout";
    case Code::kMismatch:
      return "mismatched calls";
    case Code::kAborted:
      return "aborted";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown result";
}

const std::string& Status::message() const {
  static const std::string kNone;
  return error_ ? error_->message : kNone;
}

Status Status::with_context(const std::string& context) const {
  if (ok()) return *this;
  return Status(error_->code, context + ": " + error_->message);
}

Status invalid_argument(std::string message) {
  return Status(Code::kInvalidArgument, std::move(message));
}
Status invalid_usage(std::string message) {
  return Status(Code::kInvalidUsage, std::move(message));
}
Status unsupported(std::string message) { return Status(Code::kUnsupported, std::move(message)); }
Status system_error(std::string message, int errno_value) {
  message += std::string(": ") + std::strerror(errno_value);
  rlimit files{};
  if (errno_value == EMFILE && ::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    message += " (this process may have " + std::to_string(files.rlim_cur) +
               " open; raise that with ulimit -n, at most to " + std::to_string(files.rlim_max) +
               ")";
  }
  return Status(Code::kSystem, std::move(message));
}
Status remote_error(std::string message) { return Status(Code::kRemote, std::move(message)); }
Status internal_error(std::string message) {
  return Status(Code::kInternal, std::move(message) + " (a bug in Treering: please report it)");
}

}  // namespace treering
