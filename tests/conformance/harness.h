// SPDX-License-Identifier: Apache-2.0

// Harness: what a backend provides to be tested against the contract of operator/control/backend.h. The suite
// (backend_conformance.cc) uses this interface. Each backend implements it in one file, which registers it
// with INSTANTIATE_TEST_SUITE_P(Name, BackendConformance, testing::Values(MakeIt)).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "operator/control/backend.h"

namespace ringmaster::conformance {

// The program of a pod, by rank.
inline constexpr int32_t kRuns = 0;            // until SIGTERM, then exits with 0
inline constexpr int32_t kSucceeds = 1;        // exits with 0 at once
inline constexpr int32_t kFails = 2;           // exits with 7 and the termination message below
inline constexpr int32_t kIgnoresSigterm = 3;  // ignores SIGTERM
inline constexpr int32_t kCrashes = 4;         // ends with SIGKILL
inline constexpr const char* kTerminationMessage = "out of cheese";

class Harness {
 public:
  virtual ~Harness() = default;
  virtual control::Backend& backend() = 0;
  // A job that no controller touches.
  virtual control::Key Submit(const std::string& name) = 0;
  // The same with the operator's gate: only such a job keeps reserved places. REQUIRES: HasGates().
  virtual control::Key SubmitForGate(const std::string& name) = 0;
  virtual void DeleteJob(const control::Key& key) = 0;
  // Whether pods can have a scheduling gate; local processes cannot.
  virtual bool HasGates() const = 0;
  // Deletes a supporting object as a user would. Returns false where there are none.
  virtual bool DamageSupport(const control::Key& key) = 0;
  // Puts the job into a queue of Kueue. Returns false where there is no Kueue.
  virtual bool Enqueue(const control::Key& key, const std::string& queue) = 0;
  // Does what Kueue does at an admission of all pods of the job's Workload.
  virtual void Admit(const control::Key& key) = 0;
  // Waits until the condition holds. Returns false after a long time limit.
  virtual bool Await(const std::function<bool()>& condition) = 0;
};

using MakeHarness = std::function<std::unique_ptr<Harness>()>;

class BackendConformance : public testing::TestWithParam<MakeHarness> {
 protected:
  void SetUp() override;
  // Uses this job from now on, when the backend has it.
  void Use(const control::Key& key);

  control::Backend& backend() { return harness_->backend(); }
  std::optional<core::Pod> PodOf(const std::string& name);
  std::string JobUid();
  // Executes the write and waits for the answer.
  Result<control::Revision> Write(core::Action action, std::optional<control::Revision> if_revision = {});
  Result<control::Revision> Create(int32_t rank, bool gated = false);
  Result<control::Revision> Delete(const std::string& name, Duration grace);
  // The job's Workload as the backend sees it.
  std::optional<core::Workload> WorkloadOf();
  // Executes the write, which must succeed, and waits until the view includes it.
  void Change(core::Action action);
  bool AwaitPod(const std::string& name, core::PodPhase phase);
  bool AwaitNoPod(const std::string& name);
  static std::string Name(int32_t rank) { return core::PodName("job", 1, rank); }

  std::unique_ptr<Harness> harness_;
  control::Key key_;
  std::string uid_;
};

}  // namespace ringmaster::conformance
