// The truth of the simulated world: an API server without faults (revisions, preconditions, collector), a
// kubelet per pod, and a model of what runs in the pods (gang_model.h). Virtual time, single-threaded,
// deterministic by seed. SimBackend puts the faulty network in front of it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "operator/control/ports.h"
#include "operator/sim/faults.h"
#include "operator/sim/scheduler.h"

namespace ringmaster::sim {

// What the program in a pod does of itself.
struct Behaviour {
  std::optional<Duration> ends_after;  // of running
  int32_t exit_code = 0;
  std::string message;
  bool ignores_sigterm = false;
};

struct PodTruth {
  core::Pod pod;
  Behaviour behaviour;
  bool silent = false;
  bool stuck = false;  // its node is gone: only force removes it
  bool joined = false;
};

struct GangState {
  int64_t step = 0;
  int64_t total_steps = 0;
  int64_t checkpoint_step = 0;
  std::vector<std::string> members;  // uids
  rendezvous::Report report;
  std::optional<core::SetGang> order;
};

struct JobTruth {
  core::Job job;
  core::Status status;
  control::Revision revision = 0;
  std::map<std::string, PodTruth> pods;  // by name
  GangState gang;
  Duration foreign_work{0};  // done by the pod set of `foreign_attempt`
  int64_t foreign_attempt = 0;
};

class World {
 public:
  struct Options {
    uint64_t seed = 1;
    Faults faults;
    std::function<Behaviour(const core::Pod&)> behaviour;  // default: runs until told
    bool models = true;                                    // gang and framework models run
  };
  // Who watches the truth: the backend (to carry changes to the view) and the checker.
  struct Observer {
    std::function<void(const control::Key&)> job_changed;
    std::function<void(const control::Key&, const std::string& pod)> pod_changed;
    std::function<void(const control::Key&)> report_changed;
  };

  World(Scheduler& scheduler, Options options);

  void Observe(Observer observer) { observers_.push_back(std::move(observer)); }
  const std::map<control::Key, JobTruth>& jobs() const { return jobs_; }
  const JobTruth* Find(const control::Key& key) const;
  control::Revision revision(control::Kind kind) const { return revisions_[static_cast<size_t>(kind)]; }
  bool faulty() const { return scheduler_.elapsed() < options_.faults.until; }

  // The user. `job.uid` is given here.
  void Submit(const control::Key& key, core::Job job, int64_t total_steps);
  void Change(const control::Key& key, const std::function<void(core::Job&)>& change);
  void Delete(const control::Key& key);
  void DeletePodByHand(const control::Key& key, const std::string& name);

  // The API server: at once, and always with an answer.
  Result<control::Revision> Apply(const control::Write& write);

  // The coordinator lives in the controller's process: what it knew is gone, agents come back to the next.
  void LoseCoordinator(const control::Key& key);

  void EndPod(const control::Key& key, const std::string& uid, int32_t exit_code, const std::string& message);

 private:
  friend class GangModel;

  void Tick();
  void BreakThings(const control::Key& key, JobTruth& job);
  void StartPod(const control::Key& key, const std::string& uid);
  Result<control::Revision> CreatePod(const control::Key& key, JobTruth& job, const core::CreatePod& action);
  Result<control::Revision> DeletePod(const control::Key& key, JobTruth& job, const core::DeletePod& action);
  void TellToEnd(const control::Key& key, PodTruth& pod, Duration grace);
  void RemovePod(const control::Key& key, const std::string& name);
  void Collect(const control::Key& key);
  PodTruth* FindPod(const control::Key& key, const std::string& uid);
  control::Revision JobChanged(const control::Key& key);
  control::Revision PodChanged(const control::Key& key, const std::string& name);
  void ReportChanged(const control::Key& key);
  Duration Random(Duration most);

  Scheduler& scheduler_;
  Options options_;
  SplitMix64 rng_;
  std::map<control::Key, JobTruth> jobs_;
  std::vector<Observer> observers_;
  control::Revision revisions_[2] = {0, 0};
  uint64_t next_uid_ = 1;
};

}  // namespace ringmaster::sim
