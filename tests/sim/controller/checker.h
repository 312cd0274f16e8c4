// Watches the truth of a simulated run and every decision, and keeps the first breach of an invariant of
// operator/core/model.h.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "operator/sim/world.h"

namespace ringmaster::sim {

class Checker {
 public:
  // Jobs with rules have one that does not charge this code.
  static constexpr int32_t kUnchargedExitCode = 139;

  Checker(World& world, const Scheduler& scheduler);

  // Before the commands of a decision are carried out.
  void OnDecision(const core::Observed& observed, const core::Decision& decision, Time now);
  // When everything should have come to rest.
  void OnEnd(const control::Key& key, bool settled);

  const std::optional<std::string>& breach() const { return breach_; }

 private:
  struct Shadow {
    std::string job_uid;
    core::Ledger ledger;
    std::map<std::string, core::Pod> pods;
    std::set<std::string> ever_counted;
    Time spec_changed{};
    int64_t spec_generation = 0;
  };

  void OnJob(const control::Key& key);
  void OnPod(const control::Key& key, const std::string& name);
  void CheckLedger(const JobTruth& job, Shadow& shadow);
  void CheckCreated(const JobTruth& job, const core::Pod& pod);
  void CheckRemoved(const JobTruth& job, const Shadow& shadow, const core::Pod& pod);
  void Require(bool holds, const char* invariant, const std::string& what);

  World& world_;
  const Scheduler& scheduler_;
  std::map<control::Key, Shadow> shadows_;
  std::optional<std::string> breach_;
};

}  // namespace ringmaster::sim
