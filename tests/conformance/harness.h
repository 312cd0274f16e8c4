// SPDX-License-Identifier: Apache-2.0

// What a backend brings along to be held to the contract of operator/control/backend.h. The suite
// (backend_conformance.cc) is written against this; each backend has one file that implements it and
// registers itself with INSTANTIATE_TEST_SUITE_P(Name, BackendConformance, testing::Values(MakeIt)).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "operator/control/backend.h"

namespace ringmaster::conformance {

// What the program in a pod does, by rank.
inline constexpr int32_t kRuns = 0;            // until SIGTERM, then ends with 0
inline constexpr int32_t kSucceeds = 1;        // ends with 0 at once
inline constexpr int32_t kFails = 2;           // ends with 7, and leaves the message below
inline constexpr int32_t kIgnoresSigterm = 3;  // ignores SIGTERM
inline constexpr int32_t kCrashes = 4;         // dies of SIGKILL
inline constexpr const char* kTerminationMessage = "out of cheese";

class Harness {
 public:
  virtual ~Harness() = default;
  virtual control::Backend& backend() = 0;
  // A job that no controller touches.
  virtual control::Key Submit(const std::string& name) = 0;
  virtual void DeleteJob(const control::Key& key) = 0;
  // Whether pods can be held back before they get a node; processes cannot.
  virtual bool HasGates() const = 0;
  // Somebody deletes a part of what stands beside the pods; false where there is nothing to delete.
  virtual bool DamageSupport(const control::Key& key) = 0;
  // Lets the world move until the condition holds; false when it does not within a generous limit.
  virtual bool Await(const std::function<bool()>& condition) = 0;
};

using MakeHarness = std::function<std::unique_ptr<Harness>()>;

class BackendConformance : public testing::TestWithParam<MakeHarness> {
 protected:
  void SetUp() override;

  control::Backend& backend() { return harness_->backend(); }
  std::optional<core::Pod> PodOf(const std::string& name);
  std::string JobUid();
  // Waits for the answer.
  Result<control::Revision> Write(core::Action action, std::optional<control::Revision> if_revision = {});
  Result<control::Revision> Create(int32_t rank, bool gated = false);
  Result<control::Revision> Delete(const std::string& name, Duration grace);
  bool AwaitPod(const std::string& name, core::PodPhase phase);
  bool AwaitNoPod(const std::string& name);
  static std::string Name(int32_t rank) { return core::PodName("job", 1, rank); }

  std::unique_ptr<Harness> harness_;
  control::Key key_;
  std::string uid_;
};

}  // namespace ringmaster::conformance
