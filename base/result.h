// SPDX-License-Identifier: Apache-2.0

// Result<T>: an expected failure is a value. Errors carry what is wrong, where, and what to do about it.
//
// Codes say what the caller may do next. Unavailable (surely not done) and Ambiguous (perhaps done) differ on
// purpose: the first may be repeated, the second must be read back first. Value types, no thread rules.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace ringmaster {

enum class Code {
  kInvalid,  // the input is wrong: no retry helps
  kNotFound,
  kAlreadyExists,
  kConflict,  // somebody changed it meanwhile: read again, decide again
  kGone,
  kForbidden,
  kUnavailable,  // surely not done; may be tried again
  kAmbiguous,    // perhaps done: read before deciding
  kDeadlineExceeded,
  kCancelled,  // we were told to stop (a newer generation, Abort)
  kCorrupt,    // a checksum, length or magic does not match
  kExhausted,  // no memory, no disk, a limit reached
  kInternal,   // our own mistake, reported rather than fatal
};

const char* CodeName(Code code);

struct Error {
  Code code = Code::kInternal;
  std::string message;

  // Prepends context: Error{"no such file"}.In("spec.training.data.path") -> "spec.training.data.path: no
  // such file".
  [[nodiscard]] Error In(const std::string& context) const { return {code, context + ": " + message}; }
  bool operator==(const Error&) const = default;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    CHECK(ok(), "value() of an error: {}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(ok(), "value() of an error: {}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK(ok(), "value() of an error: {}", std::get<1>(state_).message);
    return std::get<0>(std::move(state_));
  }
  const Error& error() const {
    CHECK(!ok());
    return std::get<1>(state_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    CHECK(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;
inline Status Ok() { return {}; }

}  // namespace ringmaster

// Returns the error of EXPR to the caller, if it has one.
#define RM_TRY(expr)                                                  \
  do {                                                                \
    if (auto rm_try_ = (expr); !rm_try_.ok()) return rm_try_.error(); \
  } while (0)

// RM_ASSIGN(auto x, F()): x = value of F(), or returns its error.
#define RM_ASSIGN(lhs, expr) RM_ASSIGN_IMPL_(RM_CONCAT_(rm_result_, __COUNTER__), lhs, expr)
#define RM_ASSIGN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                    \
  if (!tmp.ok()) return tmp.error();    \
  lhs = std::move(tmp).value()
#define RM_CONCAT_(a, b) RM_CONCAT2_(a, b)
#define RM_CONCAT2_(a, b) a##b
