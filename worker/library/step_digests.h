// SPDX-License-Identifier: Apache-2.0

// Digests of everything that a member computes, recorded on request so that `ringmaster compare` finds where
// two runs begin to differ: the hash of each gradient of each micro-batch, and of each array of the state
// after each step. cli/compare/run_digests.h documents the format of the file.
//
// Each line is written at once, so what a member had computed is not lost when it is killed.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/json.h"
#include "base/result.h"
#include "worker/library/gradient_sums.h"
#include "worker/library/program_state.h"

namespace ringmaster::library {

class StepDigests {
 public:
  // Appends to a new file in `folder`, which is created. `pod` is for people; `job`, empty for a program
  // without an agent, is what the records of all members of a run have in common; `tensors` as in Config.
  static Result<StepDigests> Create(const std::string& folder, const std::string& member,
                                    const std::string& pod, const std::string& job,
                                    const std::vector<Tensor>& tensors);

  // Steps count from 1: the first micro-batches are those of step 1.
  void BeginMicroBatch(int64_t step, uint64_t generation, int v);
  void Add(int tensor, std::span<const float> values);
  Status EndMicroBatch(double loss, std::optional<double> weight);
  Status Committed(int64_t step, uint64_t generation, double loss, double gradient_norm,
                   double learning_rate);

  // Whether the state after `step` is not recorded yet.
  bool WantsState(int64_t step) const { return step != state_step_; }
  Status State(int64_t step, uint64_t generation, const std::vector<StateArray>& arrays);

 private:
  StepDigests(Fd file, std::string path, size_t tensors)
      : file_(std::move(file)), path_(std::move(path)), tensors_(tensors) {}
  Status Write(const Json& line);

  Fd file_;
  std::string path_;
  size_t tensors_;
  Json micro_batch_;  // the current one
  int64_t state_step_ = -1;
};

}  // namespace ringmaster::library
