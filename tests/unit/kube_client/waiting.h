// SPDX-License-Identifier: Apache-2.0

// Waits for callbacks on other threads.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "operator/kube/http_client.h"

namespace ringmaster::kube {

// Long enough for instrumented code on busy machines; a test that waits this long has failed.
inline constexpr Duration kPatience = seconds(60);

// A box for one value.
template <class T>
class Promise {
 public:
  void Set(T value) {
    std::lock_guard lock(mutex_);
    value_ = std::move(value);
    ++times_;
    set_.notify_all();
  }
  bool Wait() {
    std::unique_lock lock(mutex_);
    return set_.wait_for(lock, kPatience, [&] { return value_.has_value(); });
  }
  T Get() {
    EXPECT_TRUE(Wait()) << "nothing came";
    std::lock_guard lock(mutex_);
    return *value_;
  }
  int times() {
    std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable set_;
  std::optional<T> value_;
  int times_ = 0;
};

// The lines and the end of a stream.
class Record {
 public:
  StreamHandlers Handlers() {
    return {[this](std::string_view line) {
              std::lock_guard lock(mutex_);
              lines_.emplace_back(line);
              changed_.notify_all();
            },
            [this](Result<HttpResponse> end) {
              std::lock_guard lock(mutex_);
              end_ = std::move(end);
              ++ends_;
              changed_.notify_all();
            }};
  }
  bool WaitForLines(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return lines_.size() >= count; });
  }
  Result<HttpResponse> End() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return end_.has_value(); })) << "no end came";
    return end_.value_or(Error{Code::kInternal, "no end came"});
  }
  std::vector<std::string> lines() {
    std::lock_guard lock(mutex_);
    return lines_;
  }
  int ends() {
    std::lock_guard lock(mutex_);
    return ends_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  std::optional<Result<HttpResponse>> end_;
  int ends_ = 0;
};

}  // namespace ringmaster::kube
