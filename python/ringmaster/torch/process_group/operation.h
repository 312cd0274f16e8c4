// SPDX-License-Identifier: Apache-2.0

// Operation: the Work of one collective or transfer. Its owner completes it once, from any thread.
#pragma once

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ringmaster {

using Clock = std::chrono::steady_clock;

constexpr auto kLongest =
    std::chrono::hours(24 * 365);  // of a timeout: a sum with the time must not overflow

class Operation final : public c10d::Work {
 public:
  struct Description {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* name = "";
    std::chrono::milliseconds timeout{};
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> inputs;  // for the profiler
    int source = -1;                 // of a receive
  };

  // `abort`: ends all operations of the group; used until this one has completed.
  Operation(int rank, uint64_t number, Description description, std::function<void()> abort)
      : Work(rank, description.type, description.name, description.inputs),
        number_(number),
        description_(std::move(description)),
        deadline_(Clock::now() + std::min<std::chrono::milliseconds>(description_.timeout, kLongest)),
        abort_(std::move(abort)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  std::string Name() const {
    return std::string(description_.name) + " (operation " + std::to_string(number_) + ")";
  }
  Clock::time_point deadline() const { return deadline_; }
  std::chrono::milliseconds timeout() const { return description_.timeout; }

  void Succeed() {
    finish();
    future_->markCompleted(c10::IValue(description_.outputs));
  }
  void Fail(const std::string& reason) {
    const auto error = std::make_exception_ptr(
        c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                              Name() + " of rank " + std::to_string(rank_) + ": " + reason));
    finish(error);
    future_->setError(error);
  }

  // --- Work ---
  std::vector<at::Tensor> result() override { return description_.outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return number_; }
  int sourceRank() const override { return description_.source; }
  void abort() override {
    if (!isCompleted()) abort_();
  }

 private:
  const uint64_t number_;
  const Description description_;
  const Clock::time_point deadline_;
  const std::function<void()> abort_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace ringmaster
