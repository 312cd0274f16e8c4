// SPDX-License-Identifier: Apache-2.0

// Result<T> holds a value or an Error. Functions whose failure is expected return it instead of throwing.
//
// A newcomer reads this file first, then base/check.h (programming errors) and base/log.h: every other folder
// uses these three.
//
// A Code states what the caller may do next; the message names the problem, its place and the remedy.
// kUnavailable means that the request had no effect and may be repeated. kAmbiguous means that the request
// may have had its effect: the caller reads the state before it decides. Value types; not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace ringmaster {

enum class Code {
  kInvalid,  // the input is wrong; a retry cannot succeed
  kNotFound,
  kAlreadyExists,
  kConflict,  // another writer changed the object: read it again and decide again
  kGone,
  kForbidden,
  kUnavailable,  // no effect; may be repeated
  kAmbiguous,    // perhaps took effect: read the state before deciding
  kDeadlineExceeded,
  kCancelled,  // stopped on request (a newer generation, Abort)
  kCorrupt,    // a checksum, a length or a magic number does not match
  kExhausted,  // out of memory, out of disk space, or over a limit
  kInternal,   // a programming error that is reported instead of fatal
};

// Returns the name without its k: "Invalid".
const char* CodeName(Code code);

struct Error {
  Code code = Code::kInternal;
  std::string message;

  // Returns the error with context in front of its message: "no such file" in "spec.training.data.path"
  // becomes "spec.training.data.path: no such file".
  [[nodiscard]] Error In(const std::string& context) const { return {code, context + ": " + message}; }
  bool operator==(const Error&) const = default;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  // value(), operator* and operator-> REQUIRE ok(); error() REQUIRES !ok(). A violation aborts.
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

// Success or an Error.
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

// RM_TRY(expr): returns the error of `expr` to the caller, if it has one.
#define RM_TRY(expr)                                                  \
  do {                                                                \
    if (auto rm_try_ = (expr); !rm_try_.ok()) return rm_try_.error(); \
  } while (0)

// RM_ASSIGN(auto x, F()): assigns the value of F() to x, or returns the error of F() to the caller.
#define RM_ASSIGN(lhs, expr) RM_ASSIGN_IMPL_(RM_CONCAT_(rm_result_, __COUNTER__), lhs, expr)
#define RM_ASSIGN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                    \
  if (!tmp.ok()) return tmp.error();    \
  lhs = std::move(tmp).value()
#define RM_CONCAT_(a, b) RM_CONCAT2_(a, b)
#define RM_CONCAT2_(a, b) a##b
