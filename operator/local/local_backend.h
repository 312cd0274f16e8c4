// SPDX-License-Identifier: Apache-2.0

// The Backend for one machine: each pod is a process, and jobs and their statuses are kept in memory. It
// takes the part of the API server (revisions, preconditions), of the kubelet (processes, exit codes, grace
// periods) and of the garbage collector (pods of a deleted job end). `ringmaster run` uses it like this:
//
//   local::LocalBackend::Options options;
//   options.argv = {"/path/to/ringmaster-worker", "agent"};
//   options.directory = out;                              // DIR/pods/<pod>, DIR/logs/<pod>.log
//   options.environment = {job_file, "127.0.0.1:4711", secret_file, {}};
//   options.on_gang = [&](const auto& key, const core::SetGang& order) { coordinator order; };
//   options.on_status = [&](const auto& key, const core::Status& status) { show; };
//   options.on_event = [&](const auto& key, const core::Event& event) { append to events.jsonl; };
//   RM_ASSIGN(auto backend, local::LocalBackend::Create(std::move(options)));
//   control::Loop loop(*backend, {.seed = 1});
//   RM_ASSIGN(const control::Key key, backend->Submit(job));
//   loop.Start();
//   coordinator callback:  backend->SetReport(key, report);
//   first Ctrl-C:          backend->SetSuspend(key, true);     SIGHUP: backend->Replace(job again);
//   backend->WaitSettled(key, limit)  ->  ended, or suspended, and no process is left
//   loop.Stop();  backend.reset();                         // kills the processes that still run
//
// Environment of a pod: RINGMASTER_JOB (namespace/name), RINGMASTER_POD, RINGMASTER_JOB_FILE,
// RINGMASTER_COORDINATOR, RINGMASTER_SECRET_FILE, RINGMASTER_TERMINATION_LOG (the file for the pod's
// termination message). A pod whose process cannot start ends with exit code 64 and the reason.
//
// Thread-safe. Callbacks run without a lock held: on_gang, on_status and on_event on the thread that calls
// Execute or Record (the control loop's), the subscription and on_pod_end on any thread.
//
// Invariants: a pod name has at most one process at a time; when a process has ended, so has everything that
// it has started; SIGKILL to this process ends every pod with all that it has started (warden.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/training_job.h"
#include "base/mutex.h"
#include "operator/control/backend.h"
#include "operator/local/process_supervisor.h"

namespace ringmaster::local {

struct PodEnvironment {
  std::string job_file;
  std::string coordinator;  // host:port
  std::string secret_file;  // readable only by this user
  std::map<std::string, std::string> extra;
};

class LocalBackend final : public control::Backend {
 public:
  // What the pods of a role run, instead of what all pods run.
  struct RoleProgram {
    std::vector<std::string> argv;
    std::map<std::string, std::string> environment;  // PodEnvironment::extra takes precedence
  };

  struct Options {
    std::vector<std::string> argv;  // of every pod; argv[0] is a path
    std::function<const RoleProgram*(const std::string& role, int32_t index)> role_program = {};
    std::string directory;
    std::string working_folder;  // of every pod; empty: DIR/pods/<pod>
    PodEnvironment environment;
    std::function<void(const control::Key&, const core::SetGang&)> on_gang;
    std::function<void(const control::Key&, const core::Status&)> on_status;
    std::function<void(const control::Key&, const core::Event&)> on_event;
    // The agents of this pod have ended. No other pod of this name has started.
    std::function<void(const control::Key&, const std::string& pod)> on_pod_end;
  };

  // Creates the folders below `directory`, and ends the processes that an earlier owner of the same job file
  // has left. Errors: kUnavailable when one of them does not end.
  static Result<std::unique_ptr<LocalBackend>> Create(Options options);
  ~LocalBackend() override;

  // The user's side. REQUIRES: jobs have been validated. The TTL has no effect here: the folder is the
  // user's.
  Result<control::Key> Submit(const api::TrainingJob& job);  // kAlreadyExists
  Status Replace(const api::TrainingJob& job);               // changes the spec; kNotFound
  Status SetSuspend(const control::Key& key, bool suspend);
  Status Scale(const control::Key& key, int32_t replicas);
  Status Delete(const control::Key& key);  // the job is removed once its pods have ended

  // The coordinator's side. A report replaces the one before.
  void SetReport(const control::Key& key, rendezvous::Report report);

  // Signals the process of a pod, for --chaos. kNotFound: it has none.
  Status SignalPod(const control::Key& key, const std::string& pod, int signal);

  // Returns true if the job has ended, is suspended or was deleted, and none of its processes runs.
  bool Settled(const control::Key& key) const;
  bool WaitSettled(const control::Key& key, Duration limit) const;

  std::optional<control::Snapshot> Observe(const control::Key& key) const override;
  control::Revision Seen(control::Kind kind, const control::Key& key) const override;
  std::vector<control::Key> Keys() const override;
  void Execute(control::Write write, std::function<void(Result<control::Revision>)> done) override;
  void ReadThrough(const control::Key& key, std::function<void(Status)> done) override;
  void Record(const control::Key& key, const core::Event& event) override;
  void Subscribe(std::function<void(const control::Key&)> changed) override;

 private:
  struct JobEntry {
    core::Job job;
    bool stop_ordered = false;  // by SetSuspend; stays when Replace loads the file again
    core::Status status;
    control::Revision revision = 0;
    std::optional<rendezvous::Report> report;
    std::optional<core::SetGang> order;
    std::optional<core::PrepareGang> prepared;
    std::map<std::string, core::Pod> pods;  // by name
  };

  explicit LocalBackend(Options options);

  JobEntry* Find(const control::Key& key) RM_REQUIRES(mutex_);
  const JobEntry* Find(const control::Key& key) const RM_REQUIRES(mutex_);
  bool SettledLocked(const control::Key& key) const RM_REQUIRES(mutex_);
  Result<control::Revision> ApplyAction(const control::Write& write, JobEntry& entry) RM_REQUIRES(mutex_);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry, const core::SetStatus& action)
      RM_REQUIRES(mutex_);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry, const core::CreatePod& action)
      RM_REQUIRES(mutex_);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry, const core::DeletePod& action)
      RM_REQUIRES(mutex_);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry,
                                  const core::UntrackPod& action) RM_REQUIRES(mutex_);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry, const core::SetGang& action)
      RM_REQUIRES(mutex_);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry, const core::DeleteJob& action)
      RM_REQUIRES(mutex_);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry,
                                  const core::DropGroups& action) RM_REQUIRES(mutex_);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry, const core::TryPods& action)
      RM_REQUIRES(mutex_);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry,
                                  const core::PrepareGang& action) RM_REQUIRES(mutex_);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry,
                                  const core::ReleaseGang& action) RM_REQUIRES(mutex_);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry,
                                  const core::ReserveRoom& action) RM_REQUIRES(mutex_);
  void StopPod(core::Pod& pod, Duration grace) RM_REQUIRES(mutex_);
  void RemovePod(const control::Key& key, JobEntry& entry, const std::string& name) RM_REQUIRES(mutex_);
  void DeleteEntry(const control::Key& key, JobEntry& entry) RM_REQUIRES(mutex_);

  Status Change(const control::Key& key, const std::function<void(JobEntry&)>& change);
  void OnStart(const std::string& uid, const Result<pid_t>& pid);
  void OnExit(const std::string& uid, int exit_code);
  void EndPod(const std::string& uid, int exit_code, const std::string& message);
  void Notify(const control::Key& key) const;
  SpawnSpec SpecOf(const control::Key& key, const core::Pod& of) const;
  std::string TerminationLog(const std::string& pod) const;

  const Options options_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::map<control::Key, JobEntry> jobs_ RM_GUARDED_BY(mutex_);
  // Pods that have a process: job and pod name by uid.
  std::map<std::string, std::pair<control::Key, std::string>> by_uid_ RM_GUARDED_BY(mutex_);
  control::Revision job_revision_ RM_GUARDED_BY(mutex_) = 0;
  control::Revision pod_revision_ RM_GUARDED_BY(mutex_) = 0;
  uint64_t next_uid_ RM_GUARDED_BY(mutex_) = 1;
  std::vector<std::function<void(const control::Key&)>> subscribers_ RM_GUARDED_BY(mutex_);
  std::unique_ptr<ProcessSupervisor> supervisor_;  // last: its callbacks use the members above
};

}  // namespace ringmaster::local
