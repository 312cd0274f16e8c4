// SPDX-License-Identifier: Apache-2.0

// The conformance suite for the simulated backend: without faults, and with a lagging view.
#include "tests/conformance/harness.h"
#include "tests/sim/controller/sim_backend.h"

namespace ringmaster::conformance {
namespace {

sim::Behaviour BehaviourOf(const core::Pod& pod) {
  switch (pod.rank) {
    case kSucceeds:
      return {milliseconds(10), 0, "", false};
    case kFails:
      return {milliseconds(10), 7, kTerminationMessage, false};
    case kIgnoresSigterm:
      return {std::nullopt, 0, "", true};
    case kCrashes:
      return {milliseconds(10), 137, "", false};
    default:
      return {};
  }
}

class SimHarness final : public Harness {
 public:
  explicit SimHarness(const sim::Faults& faults)
      : world_(scheduler_, OptionsOf(faults)),
        backend_(world_, scheduler_, faults, {.seed = 9, .priorities = {}, .ages = {}, .on_reserved = {}}) {
    world_.SetTerm(1);
    backend_.Restart(1);
  }

  control::Backend& backend() override { return backend_; }

  control::Key Submit(const std::string& name) override {
    core::Job job;
    job.name = name;
    const control::Key key{"default", name};
    world_.Submit(key, job, 100);
    return key;
  }
  control::Key SubmitForGate(const std::string& name) override { return Submit(name); }

  void DeleteJob(const control::Key& key) override { world_.Delete(key); }

  bool HasGates() const override { return true; }

  bool DamageSupport(const control::Key& key) override {
    world_.DamageSupport(key);
    return true;
  }

  bool Enqueue(const control::Key& key, const std::string& queue) override {
    world_.SetQueue(key, queue);
    return true;
  }
  void Admit(const control::Key& key) override { world_.AdmitWorkloads(key); }

  bool Await(const std::function<bool()>& condition) override {
    while (!condition()) {
      if (scheduler_.NextAt() == kNever) return false;  // no event will ever follow
      scheduler_.Step();
    }
    return true;
  }

 private:
  static sim::World::Options OptionsOf(const sim::Faults& faults) {
    sim::World::Options options;
    options.seed = 7;
    options.faults = faults;
    options.behaviour = BehaviourOf;
    options.models = false;
    return options;
  }

  sim::Scheduler scheduler_;
  sim::World world_;
  sim::SimBackend backend_;
};

std::unique_ptr<Harness> MakePrompt() { return std::make_unique<SimHarness>(sim::Faults::None()); }

std::unique_ptr<Harness> MakeLagging() {
  sim::Faults faults;
  faults.until = seconds(1'000'000);
  faults.watch_lag_max = seconds(3);
  faults.request_max = milliseconds(400);
  return std::make_unique<SimHarness>(faults);
}

INSTANTIATE_TEST_SUITE_P(Sim, BackendConformance, testing::Values(MakePrompt));
INSTANTIATE_TEST_SUITE_P(SimLagging, BackendConformance, testing::Values(MakeLagging));

}  // namespace
}  // namespace ringmaster::conformance
