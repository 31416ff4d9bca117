// Status and Result<T>: how every fallible function of the library answers. Nothing in it throws.
//
// Three kinds of failure (ARCHITECTURE.md, "Errors"): the caller's fault, and nothing happened
// (kInvalidArgument, kInvalidUsage, kUnsupported); the system or another rank, and the communicator
// is failed (kSystem, kRemote, kTimeout, kMismatch, kAborted); a broken invariant of ours
// (kInternal).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace treering {

// Values equal tr_result_t (asserted in src/api).
enum class Code : std::uint8_t {
  kOk = 0,
  kInvalidArgument = 1,
  kInvalidUsage = 2,
  kUnsupported = 3,
  kSystem = 4,
  kRemote = 5,
  kTimeout = 6,
  kMismatch = 7,
  kAborted = 8,
  kInternal = 9,
};

const char* code_name(Code code);

// Success costs one null pointer; an error owns its text. Movable and copyable.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message)
      : error_(std::make_shared<const Error>(Error{code, std::move(message)})) {}

  bool ok() const { return error_ == nullptr; }
  explicit operator bool() const { return ok(); }
  Code code() const { return error_ ? error_->code : Code::kOk; }
  const std::string& message() const;

  // The same error with `context` in front: "while connecting to rank 3: connection refused".
  Status with_context(const std::string& context) const;

 private:
  struct Error {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Error> error_;
};

Status invalid_argument(std::string message);
Status invalid_usage(std::string message);
Status unsupported(std::string message);
// Appends the text of errno_value: "cannot map 4096 bytes: Cannot allocate memory".
Status system_error(std::string message, int errno_value);
Status remote_error(std::string message);
Status internal_error(std::string message);

// A value or the Status that says why there is none. value() requires ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace treering

// Leaves the current function with the error of `expr`, if it has one.
#define TR_RETURN_IF_ERROR(expr)             \
  do {                                       \
    ::treering::Status tr_status_ = (expr);  \
    if (!tr_status_.ok()) return tr_status_; \
  } while (0)

#define TR_CONCAT_INNER(a, b) a##b
#define TR_CONCAT(a, b) TR_CONCAT_INNER(a, b)
// TR_ASSIGN_OR_RETURN(auto fd, open_something());
#define TR_ASSIGN_OR_RETURN(lhs, expr) \
  TR_ASSIGN_OR_RETURN_IMPL(TR_CONCAT(tr_result_, __LINE__), lhs, expr)
#define TR_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return tmp.status();            \
  lhs = std::move(tmp).value()
