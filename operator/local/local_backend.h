// SPDX-License-Identifier: Apache-2.0

// The Backend on one machine: every pod is one process, the job and its status live in memory. It plays what
// a cluster plays otherwise: API server (revisions, preconditions), kubelet (processes, exit codes, grace)
// and collector (pods of a deleted job end). `ringmaster run` uses it like this:
//
//   local::LocalBackend::Options options;
//   options.argv = {"/path/to/ringmaster-worker", "agent"};
//   options.directory = out;                              // DIR/pods/<pod>, DIR/logs/<pod>.log
//   options.environment = {job_file, "127.0.0.1:4711", secret_file, {}};
//   options.on_gang = [&](const auto& key, const core::SetGang& order) { tell the coordinator; };
//   options.on_status = [&](const auto& key, const core::Status& status) { show; };
//   options.on_event = [&](const auto& key, const core::Event& event) { append to events.jsonl; };
//   RM_ASSIGN(auto backend, local::LocalBackend::Create(std::move(options)));
//   control::Loop loop(*backend, {.seed = 1});
//   RM_ASSIGN(const control::Key key, backend->Submit(job));
//   loop.Start();
//   coordinator callback:  backend->SetReport(key, report);
//   first Ctrl-C:          backend->SetSuspend(key, true);     SIGHUP: backend->Replace(job again);
//   backend->WaitSettled(key, limit)  ->  ended, or suspended, and no process is left
//   loop.Stop();  backend.reset();                         // kills whatever would still run
//
// Environment of a pod: RINGMASTER_JOB (namespace/name), RINGMASTER_POD, RINGMASTER_JOB_FILE,
// RINGMASTER_COORDINATOR, RINGMASTER_SECRET_FILE, RINGMASTER_TERMINATION_LOG (what the pod writes there is
// its message when it ends). A pod that cannot be started at all ends with exit code 64 and the reason.
//
// Threads: every function may be called from any thread. Callbacks run without any lock held: on_gang,
// on_status, on_event on the thread that calls Execute or Record (the loop's); the subscription on any.
// Invariants: one process per pod name at a time; a process that ended has no living group behind it; kill -9
// of this process ends every pod (spawn.h).
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/training_job.h"
#include "operator/control/backend.h"
#include "operator/local/process_supervisor.h"

namespace ringmaster::local {

struct PodEnvironment {
  std::string job_file;
  std::string coordinator;  // host:port
  std::string secret_file;  // readable by us alone
  std::map<std::string, std::string> extra;
};

class LocalBackend final : public control::Backend {
 public:
  struct Options {
    std::vector<std::string> argv;  // of every pod; argv[0] is a path
    std::string directory;
    PodEnvironment environment;
    std::function<void(const control::Key&, const core::SetGang&)> on_gang;
    std::function<void(const control::Key&, const core::Status&)> on_status;
    std::function<void(const control::Key&, const core::Event&)> on_event;
  };

  // Makes the folders. Fails with the reason when they cannot be made.
  static Result<std::unique_ptr<LocalBackend>> Create(Options options);
  ~LocalBackend() override;

  // The user's side. Jobs were validated. TTL is not honoured here: the folder is the user's.
  Result<control::Key> Submit(const api::TrainingJob& job);  // kAlreadyExists
  Status Replace(const api::TrainingJob& job);               // another wish; kNotFound
  Status SetSuspend(const control::Key& key, bool suspend);
  Status Scale(const control::Key& key, int32_t replicas);
  Status Delete(const control::Key& key);  // its pods end; then it is gone

  // The coordinator's side: the newest report replaces the one before.
  void SetReport(const control::Key& key, rendezvous::Report report);

  // To the process of a pod, for --chaos. kNotFound when there is none.
  Status SignalPod(const control::Key& key, const std::string& pod, int signal);

  // Ended, suspended or deleted, and no process is left.
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
    bool stop_ordered = false;  // by SetSuspend: outlasts a reload of the file
    core::Status status;
    control::Revision revision = 0;
    std::optional<rendezvous::Report> report;
    std::optional<core::SetGang> order;
    std::optional<core::PrepareGang> prepared;
    std::map<std::string, core::Pod> pods;  // by name
  };

  explicit LocalBackend(Options options);

  // All of these expect mutex_ to be held.
  JobEntry* Find(const control::Key& key);
  const JobEntry* Find(const control::Key& key) const;
  bool SettledLocked(const control::Key& key) const;
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry,
                                  const core::SetStatus& action);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry,
                                  const core::CreatePod& action);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry,
                                  const core::DeletePod& action);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry, const core::SetGang& action);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry,
                                  const core::DeleteJob& action);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry,
                                  const core::PrepareGang& action);
  Result<control::Revision> Apply(const control::Write& write, JobEntry& entry,
                                  const core::ReleaseGang& action);
  void StopPod(core::Pod& pod, Duration grace);
  void RemovePod(const control::Key& key, JobEntry& entry, const std::string& name);
  void DeleteEntry(const control::Key& key, JobEntry& entry);

  Status Change(const control::Key& key, const std::function<void(JobEntry&)>& change);
  void OnStart(const std::string& uid, const Result<pid_t>& pid);
  void OnExit(const std::string& uid, int exit_code);
  void EndPod(const std::string& uid, int exit_code, const std::string& message);
  void Notify(const control::Key& key) const;
  SpawnSpec SpecOf(const control::Key& key, const std::string& pod, int32_t rank) const;
  std::string TerminationLog(const std::string& pod) const;

  const Options options_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<control::Key, JobEntry> jobs_;
  std::map<std::string, std::pair<control::Key, std::string>> by_uid_;  // of pods that have a process
  control::Revision job_revision_ = 0;
  control::Revision pod_revision_ = 0;
  uint64_t next_uid_ = 1;
  std::vector<std::function<void(const control::Key&)>> subscribers_;
  std::unique_ptr<ProcessSupervisor> supervisor_;  // last: its thread calls back into all of the above
};

}  // namespace ringmaster::local
