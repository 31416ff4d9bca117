// How every fallible call of the C++ API answers: a value, or an error with a code and a text.
// Nothing here throws unless or_throw() is called.
//
//   tr::Result<tr::Communicator> made = tr::Communicator::from_env();
//   if (!made) return report(made.error().message);
//   tr::Communicator comm = std::move(made).value();
//
// Both types are [[nodiscard]]: an answer that nobody reads is a compiler warning.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#ifdef __cpp_exceptions
#include <stdexcept>
#endif

#include "treering/treering.h"

namespace tr {

// What went wrong. The codes and what they say about the communicator: top of treering.h.
struct Error {
  tr_result_t code = TR_INTERNAL_ERROR;
  std::string message;  // the whole explanation, one line

  // The last error of the C API on this thread, as `code` was just returned.
  static Error last(tr_result_t code) { return {code, tr_get_last_error()}; }
};

#ifdef __cpp_exceptions
// Thrown by or_throw() only.
class Exception : public std::runtime_error {
 public:
  explicit Exception(const Error& error) : std::runtime_error(error.message), code_(error.code) {}
  tr_result_t code() const noexcept { return code_; }

 private:
  tr_result_t code_;
};
#endif

// A T or an Error. value() without a value, and error() without an error, end the program: test
// first.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & { return *checked<0>(state_); }
  const T& value() const& { return *checked<0>(state_); }
  T&& value() && { return std::move(*checked<0>(state_)); }
  const Error& error() const { return *checked<1>(state_); }

#ifdef __cpp_exceptions
  T or_throw() && {
    if (!ok()) throw Exception(error());
    return std::move(*this).value();
  }
#endif

 private:
  template <std::size_t I, class V>
  static auto checked(V& state) {
    auto* held = std::get_if<I>(&state);
    if (held == nullptr) std::abort();
    return held;
  }

  std::variant<T, Error> state_;
};

// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  // The answer of a C function that was called on this thread just now.
  static Result of(tr_result_t code) {
    if (code == TR_SUCCESS) return {};
    return Error::last(code);
  }

  bool ok() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  const Error& error() const {
    if (!error_) std::abort();
    return *error_;
  }

#ifdef __cpp_exceptions
  void or_throw() const {
    if (error_) throw Exception(*error_);
  }
#endif

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace tr
