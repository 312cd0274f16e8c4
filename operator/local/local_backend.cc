// SPDX-License-Identifier: Apache-2.0

#include "operator/local/local_backend.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "operator/control/convert.h"
#include "operator/core/decide/rules.h"
#include "operator/core/job.h"
#include "operator/local/leftovers.h"

namespace ringmaster::local {

using control::Key;
using control::Kind;
using control::Revision;

namespace {

constexpr size_t kMaxMessageBytes = 4096;
constexpr size_t kMaxFileBytes = size_t{1} << 20;  // a larger termination message is ignored
constexpr Duration kCollectGrace = seconds(10);    // for pods of a deleted job

core::Job ToCore(const api::TrainingJob& job, const std::string& uid, int64_t generation) {
  core::Job result = control::FromApi(job, uid, generation);
  if (!result.in_place) control::KeepPrograms(job, &result);
  result.ttl.reset();
  result.progress_interval = seconds(1);  // a status write costs little here
  return result;
}

Error NoJob(const Key& key) { return {Code::kNotFound, "no job " + key.ToString()}; }

}  // namespace

Result<std::unique_ptr<LocalBackend>> LocalBackend::Create(Options options) {
  CHECK(!options.argv.empty());
  RM_TRY(MakeFolder(options.directory + "/pods"));
  RM_TRY(MakeFolder(options.directory + "/logs"));
  // Each pod has its own working folder, so paths must be absolute.
  char* absolute = ::realpath(options.directory.c_str(), nullptr);
  if (absolute == nullptr) return ErrnoError(options.directory, errno);
  options.directory = absolute;
  std::free(absolute);  // NOLINT: realpath's contract
  // Its workers would train next to ours, as the same ranks.
  if (!options.environment.job_file.empty())
    RM_TRY(EndLeftovers("RINGMASTER_JOB_FILE=" + options.environment.job_file));
  return std::unique_ptr<LocalBackend>(new LocalBackend(std::move(options)));
}

LocalBackend::LocalBackend(Options options)
    : options_(std::move(options)),
      supervisor_(std::make_unique<ProcessSupervisor>(
          [this](const std::string& uid, const Result<pid_t>& pid) { OnStart(uid, pid); },
          [this](const std::string& uid, int exit_code) { OnExit(uid, exit_code); })) {}

LocalBackend::~LocalBackend() { supervisor_.reset(); }

// ---- the user's side

Result<Key> LocalBackend::Submit(const api::TrainingJob& job) {
  const Key key = control::KeyOf(job);
  {
    MutexLock lock(mutex_);
    if (jobs_.contains(key)) return Error{Code::kAlreadyExists, "job " + key.ToString() + " exists"};
    JobEntry& entry = jobs_[key];
    entry.job = ToCore(job, fmt::format("job-{}", next_uid_++), 1);
    entry.revision = ++job_revision_;
  }
  Notify(key);
  return key;
}

Status LocalBackend::Replace(const api::TrainingJob& job) {
  return Change(control::KeyOf(job), [&](JobEntry& entry) {
    entry.job = ToCore(job, entry.job.uid, entry.job.spec_generation);
    entry.job.suspend |= entry.stop_ordered;
  });
}

Status LocalBackend::SetSuspend(const Key& key, bool suspend) {
  return Change(key, [suspend](JobEntry& entry) { entry.job.suspend = entry.stop_ordered = suspend; });
}

Status LocalBackend::Scale(const Key& key, int32_t replicas) {
  return Change(key, [replicas](JobEntry& entry) { entry.job.replicas = replicas; });
}

Status LocalBackend::Delete(const Key& key) {
  {
    MutexLock lock(mutex_);
    JobEntry* entry = Find(key);
    if (entry == nullptr) return NoJob(key);
    DeleteEntry(key, *entry);
  }
  Notify(key);
  return Ok();
}

Status LocalBackend::Change(const Key& key, const std::function<void(JobEntry&)>& change) {
  {
    MutexLock lock(mutex_);
    JobEntry* entry = Find(key);
    if (entry == nullptr || entry->job.deleted) return NoJob(key);
    change(*entry);
    entry->job.spec_generation += 1;
    entry->revision = ++job_revision_;
  }
  Notify(key);
  return Ok();
}

void LocalBackend::SetReport(const Key& key, rendezvous::Report report) {
  {
    MutexLock lock(mutex_);
    JobEntry* entry = Find(key);
    if (entry == nullptr) return;
    entry->report = std::move(report);
  }
  Notify(key);
}

Status LocalBackend::SignalPod(const Key& key, const std::string& pod, int signal) {
  MutexLock lock(mutex_);
  const JobEntry* entry = Find(key);
  if (entry == nullptr) return NoJob(key);
  auto it = entry->pods.find(pod);
  if (it == entry->pods.end() || it->second.phase != core::PodPhase::kRunning)
    return Error{Code::kNotFound, "no running pod " + pod};
  supervisor_->Signal(it->second.uid, signal);
  return Ok();
}

bool LocalBackend::SettledLocked(const Key& key) const {
  const JobEntry* entry = Find(key);
  if (entry == nullptr) return true;
  const bool over = entry->status.ended() || entry->status.ledger.suspended;
  return over && std::none_of(entry->pods.begin(), entry->pods.end(),
                              [](const auto& item) { return item.second.alive(); });
}

bool LocalBackend::Settled(const Key& key) const {
  MutexLock lock(mutex_);
  return SettledLocked(key);
}

bool LocalBackend::WaitSettled(const Key& key, Duration limit) const {
  const Time until = Now() + limit;
  MutexLock lock(mutex_);
  while (!SettledLocked(key))
    if (!changed_.WaitUntil(lock, until)) return SettledLocked(key);
  return true;
}

// ---- the view

LocalBackend::JobEntry* LocalBackend::Find(const Key& key) {
  auto it = jobs_.find(key);
  return it == jobs_.end() ? nullptr : &it->second;
}

const LocalBackend::JobEntry* LocalBackend::Find(const Key& key) const {
  auto it = jobs_.find(key);
  return it == jobs_.end() ? nullptr : &it->second;
}

std::optional<control::Snapshot> LocalBackend::Observe(const Key& key) const {
  MutexLock lock(mutex_);
  const JobEntry* entry = Find(key);
  if (entry == nullptr) return std::nullopt;
  control::Snapshot snapshot;
  snapshot.observed.job = entry->job;
  snapshot.observed.status = entry->status;
  snapshot.observed.report = entry->report;
  snapshot.observed.order = entry->order;
  snapshot.observed.prepared = entry->prepared;
  snapshot.job_revision = entry->revision;
  auto& pods = snapshot.observed.pods;
  for (const auto& [name, pod] : entry->pods) pods.push_back(pod);
  std::sort(pods.begin(), pods.end(), [](const core::Pod& a, const core::Pod& b) {
    return std::pair(a.attempt, a.rank) < std::pair(b.attempt, b.rank);
  });
  return snapshot;
}

Revision LocalBackend::Seen(Kind kind, const Key&) const {
  MutexLock lock(mutex_);
  return kind == Kind::kJob ? job_revision_ : pod_revision_;
}

std::vector<Key> LocalBackend::Keys() const {
  MutexLock lock(mutex_);
  std::vector<Key> keys;
  for (const auto& [key, entry] : jobs_) keys.push_back(key);
  return keys;
}

void LocalBackend::Subscribe(std::function<void(const Key&)> changed) {
  MutexLock lock(mutex_);
  subscribers_.push_back(std::move(changed));
}

void LocalBackend::Notify(const Key& key) const {
  std::vector<std::function<void(const Key&)>> subscribers;
  {
    MutexLock lock(mutex_);
    subscribers = subscribers_;
  }
  changed_.NotifyAll();
  for (const auto& subscriber : subscribers) subscriber(key);
}

// ---- writes

void LocalBackend::Execute(control::Write write, std::function<void(Result<Revision>)> done) {
  Result<Revision> result = NoJob(write.key);
  {
    MutexLock lock(mutex_);
    JobEntry* entry = Find(write.key);
    if (entry != nullptr && entry->job.uid == write.job_uid) result = ApplyAction(write, *entry);
  }
  if (result.ok()) {
    // Before the acknowledgement: the next decision may rely on the coordinator having the order.
    if (const auto* order = std::get_if<core::SetGang>(&write.action); order != nullptr && options_.on_gang)
      options_.on_gang(write.key, *order);
    if (const auto* set = std::get_if<core::SetStatus>(&write.action); set != nullptr && options_.on_status)
      options_.on_status(write.key, set->status);
    Notify(write.key);
  }
  done(std::move(result));
}

Result<Revision> LocalBackend::ApplyAction(const control::Write& write, JobEntry& entry) {
  // The analysis does not know that std::visit calls the lambda with the mutex held.
  return std::visit(
      [&](const auto& action) RM_NO_THREAD_SAFETY_ANALYSIS -> Result<Revision> {
        if constexpr (core::kIsAboutWorkload<std::decay_t<decltype(action)>>)
          return Error{Code::kInvalid, "local processes have no quota"};
        else
          return Apply(write, entry, action);
      },
      write.action);
}

Result<Revision> LocalBackend::Apply(const control::Write& write, JobEntry& entry,
                                     const core::SetStatus& action) {
  if (!write.if_revision || *write.if_revision != entry.revision)
    return Error{Code::kConflict, "job " + write.key.ToString() + " has changed since it was read"};
  entry.status = action.status;
  entry.revision = ++job_revision_;
  return entry.revision;
}

Result<Revision> LocalBackend::Apply(const control::Write& write, JobEntry& entry,
                                     const core::CreatePod& action) {
  if (entry.job.deleted) return Error{Code::kForbidden, "job " + write.key.ToString() + " is being deleted"};
  if (entry.pods.contains(action.name)) return Error{Code::kAlreadyExists, "pod " + action.name + " exists"};
  core::Pod pod;
  pod.name = action.name;
  pod.uid = fmt::format("pod-{}", next_uid_++);
  pod.attempt = action.attempt;
  pod.rank = action.rank;
  pod.node = "localhost";
  pod.created = pod.placed = pod.started = Now();
  by_uid_[pod.uid] = {write.key, pod.name};
  supervisor_->Start(pod.uid, SpecOf(write.key, pod));
  entry.pods.emplace(pod.name, std::move(pod));
  return ++pod_revision_;
}

Result<Revision> LocalBackend::Apply(const control::Write& write, JobEntry& entry,
                                     const core::DeletePod& action) {
  auto it = entry.pods.find(action.name);
  if (it == entry.pods.end()) return Error{Code::kNotFound, "no pod " + action.name};
  if (it->second.uid != action.uid)
    return Error{Code::kConflict, "pod " + action.name + " has been replaced"};
  if (it->second.alive())
    StopPod(it->second, action.grace);
  else
    RemovePod(write.key, entry, action.name);
  return ++pod_revision_;
}

// Nothing collects ended processes, so they are not tracked.
Result<Revision> LocalBackend::Apply(const control::Write& write, JobEntry& entry,
                                     const core::UntrackPod& action) {
  const auto it = entry.pods.find(action.name);
  if (it != entry.pods.end() && it->second.uid != action.uid)
    return Error{Code::kConflict,
                 "pod " + action.name + " of " + write.key.ToString() + " has been replaced"};
  return Revision{0};
}

Result<Revision> LocalBackend::Apply(const control::Write&, JobEntry& entry, const core::SetGang& action) {
  entry.order = action;
  return Revision{0};
}

Result<Revision> LocalBackend::Apply(const control::Write& write, JobEntry& entry, const core::DeleteJob&) {
  DeleteEntry(write.key, entry);
  return Revision{0};
}

// No scheduler places processes.
Result<Revision> LocalBackend::Apply(const control::Write&, JobEntry&, const core::DropGroups&) {
  return Revision{0};
}

// No process is refused.
Result<Revision> LocalBackend::Apply(const control::Write&, JobEntry&, const core::TryPods&) {
  return Revision{0};
}

// Processes need no objects besides themselves.
Result<Revision> LocalBackend::Apply(const control::Write&, JobEntry& entry,
                                     const core::PrepareGang& action) {
  entry.prepared = action;
  return Revision{0};
}

// Nor do they need room.
Result<Revision> LocalBackend::Apply(const control::Write&, JobEntry&, const core::ReserveRoom&) {
  return Revision{0};
}

// Processes have no gate.
Result<Revision> LocalBackend::Apply(const control::Write&, JobEntry& entry,
                                     const core::ReleaseGang& action) {
  for (const core::PodRef& ref : action.pods) {
    auto it = entry.pods.find(ref.name);
    if (it == entry.pods.end()) return Error{Code::kNotFound, "no pod " + ref.name};
    if (it->second.uid != ref.uid) return Error{Code::kConflict, "pod " + ref.name + " has been replaced"};
  }
  return pod_revision_;
}

void LocalBackend::StopPod(core::Pod& pod, Duration grace) {
  const Time by = Now() + grace;
  pod.delete_by = pod.delete_by ? std::min(*pod.delete_by, by) : by;
  supervisor_->Stop(pod.uid, grace);
}

// May destroy `entry`.
void LocalBackend::RemovePod(const Key& key, JobEntry& entry, const std::string& name) {
  entry.pods.erase(name);
  ++pod_revision_;
  if (entry.job.deleted && entry.pods.empty()) {
    jobs_.erase(key);
    ++job_revision_;
  }
}

void LocalBackend::DeleteEntry(const Key& key, JobEntry& entry) {
  entry.job.deleted = true;
  entry.revision = ++job_revision_;
  std::vector<std::string> ended;
  for (auto& [name, pod] : entry.pods) {
    if (pod.alive())
      StopPod(pod, std::min(entry.job.grace, kCollectGrace));
    else
      ended.push_back(name);
  }
  ++pod_revision_;
  if (entry.pods.empty()) {
    jobs_.erase(key);
    return;
  }
  for (const std::string& name : ended) RemovePod(key, entry, name);
}

void LocalBackend::ReadThrough(const Key&, std::function<void(Status)> done) {
  done(Ok());  // the view is always current here
}

void LocalBackend::Record(const Key& key, const core::Event& event) {
  if (options_.on_event) options_.on_event(key, event);
}

// ---- processes

std::string LocalBackend::TerminationLog(const std::string& pod) const {
  return options_.directory + "/pods/" + pod + "/termination-message";
}

SpawnSpec LocalBackend::SpecOf(const Key& key, const core::Pod& of) const {
  const std::string& pod = of.name;
  SpawnSpec spec;
  spec.argv = options_.argv;
  const std::string own = options_.directory + "/pods/" + pod;
  spec.folder = options_.working_folder.empty() ? own : options_.working_folder;
  // For the termination message.
  if (const Status made = MakeFolder(own); !made.ok()) log::Warn("{}", made.error().message);
  spec.log = options_.directory + "/logs/" + pod + ".log";
  spec.environment = options_.environment.extra;
  if (const auto place = core::RolePlaceOf(of.rank); place && options_.role_program) {
    if (const RoleProgram* program = options_.role_program(place->role, place->index)) {
      spec.argv = program->argv;
      for (const auto& [name, value] : program->environment) spec.environment.try_emplace(name, value);
    }
  }
  spec.environment["RINGMASTER_JOB"] = key.ToString();
  spec.environment["RINGMASTER_POD"] = pod;
  spec.environment["RINGMASTER_ATTEMPT"] = std::to_string(of.attempt);
  spec.environment["RINGMASTER_LOCAL_RANK"] = std::to_string(of.rank);
  spec.environment["RINGMASTER_JOB_FILE"] = options_.environment.job_file;
  spec.environment["RINGMASTER_COORDINATOR"] = options_.environment.coordinator;
  spec.environment["RINGMASTER_SECRET_FILE"] = options_.environment.secret_file;
  spec.environment["RINGMASTER_TERMINATION_LOG"] = TerminationLog(pod);
  ::unlink(TerminationLog(pod).c_str());  // of an earlier pod of this name
  return spec;
}

void LocalBackend::OnStart(const std::string& uid, const Result<pid_t>& pid) {
  if (!pid.ok()) {
    // What may pass must not fail the job, as bad input does.
    const bool never = pid.error().code == Code::kInvalid;
    return EndPod(uid, never ? kExitBadInput : kExitDevice, pid.error().message);
  }
  Key key;
  {
    MutexLock lock(mutex_);
    auto it = by_uid_.find(uid);
    if (it == by_uid_.end()) return;
    key = it->second.first;
    core::Pod& pod = jobs_.at(key).pods.at(it->second.second);
    pod.phase = core::PodPhase::kRunning;
    pod.started = Now();
    ++pod_revision_;
  }
  Notify(key);
}

void LocalBackend::OnExit(const std::string& uid, int exit_code) {
  std::string message;
  std::pair<Key, std::string> pod;
  {
    MutexLock lock(mutex_);
    auto it = by_uid_.find(uid);
    if (it == by_uid_.end()) return;
    pod = it->second;
    auto text = ReadFile(TerminationLog(it->second.second), kMaxFileBytes);
    if (text.ok()) message = text->substr(0, kMaxMessageBytes);
  }
  if (options_.on_pod_end) options_.on_pod_end(pod.first, pod.second);
  EndPod(uid, exit_code, message);
}

void LocalBackend::EndPod(const std::string& uid, int exit_code, const std::string& message) {
  Key key;
  {
    MutexLock lock(mutex_);
    auto node = by_uid_.extract(uid);
    if (node.empty()) return;
    std::string name;
    std::tie(key, name) = node.mapped();
    JobEntry& entry = jobs_.at(key);
    core::Pod& pod = entry.pods.at(name);
    pod.phase = exit_code == 0 ? core::PodPhase::kSucceeded : core::PodPhase::kFailed;
    pod.exit_code = exit_code;
    pod.message = message;
    pod.ended = Now();
    ++pod_revision_;
    if (pod.deleting()) RemovePod(key, entry, name);
  }
  Notify(key);
}

}  // namespace ringmaster::local
