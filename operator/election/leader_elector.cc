// SPDX-License-Identifier: Apache-2.0

#include "operator/election/leader_elector.h"

#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "base/log.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::election {
namespace {

const kube::Resource kLeases{"coordination.k8s.io", "v1", "leases"};
constexpr Duration kReleaseLimit = seconds(3);

// For display only: no candidate decides by these times.
std::string TimeText() { return kube::WallTimeText(kube::WallNow()); }

}  // namespace

Json ToLease(const LeaseRecord& record, const std::string& name, const std::string& acquired,
             const std::string& renewed) {
  Json spec = {{"leaseDurationSeconds", std::chrono::duration_cast<seconds>(record.duration).count()},
               {"leaseTransitions", record.transitions},
               {"acquireTime", acquired},
               {"renewTime", renewed}};
  if (!record.holder.empty()) spec["holderIdentity"] = record.holder;
  Json metadata = {{"name", name}};
  if (!record.revision.empty()) metadata["resourceVersion"] = record.revision;
  return {{"apiVersion", kLeases.ApiVersion()},
          {"kind", "Lease"},
          {"metadata", std::move(metadata)},
          {"spec", std::move(spec)}};
}

Result<LeaseRecord> FromLease(const Json& lease) {
  const auto metadata = lease.find("metadata");
  if (metadata == lease.end() || !metadata->is_object()) return Error{Code::kInvalid, "Lease: no metadata"};
  LeaseRecord record;
  RM_ASSIGN(record.revision, JsonString(*metadata, "resourceVersion"));
  const Json spec = lease.value("spec", Json::object());
  // Every member is optional. Without a holderIdentity the Lease is free.
  if (spec.contains("holderIdentity") && spec["holderIdentity"].is_string())
    record.holder = spec["holderIdentity"].get<std::string>();
  if (spec.contains("leaseDurationSeconds") && spec["leaseDurationSeconds"].is_number_integer())
    record.duration = seconds(spec["leaseDurationSeconds"].get<int64_t>());
  if (spec.contains("leaseTransitions") && spec["leaseTransitions"].is_number_integer())
    record.transitions = spec["leaseTransitions"].get<int64_t>();
  return record;
}

class LeaderElector::Mailbox {
 public:
  struct Answer {
    LeaseStateMachine::Action action;
    Result<Json> result;
  };

  void Push(Answer answer) {
    MutexLock lock(mutex_);
    answers_.push_back(std::move(answer));
    ready_.NotifyAll();
  }
  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
    ready_.NotifyAll();
  }
  // Waits for an answer. Returns nullopt at `until` or once closed.
  std::optional<Answer> Take(Time until) {
    MutexLock lock(mutex_);
    while (!closed_ && answers_.empty())
      if (!ready_.WaitUntil(lock, until)) break;
    if (answers_.empty()) return std::nullopt;
    Answer answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }
  bool closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }

 private:
  mutable Mutex mutex_;
  CondVar ready_;
  std::deque<Answer> answers_ RM_GUARDED_BY(mutex_);
  bool closed_ RM_GUARDED_BY(mutex_) = false;
};

LeaderElector::LeaderElector(kube::ApiClient& api, Options options)
    : api_(api),
      options_(std::move(options)),
      machine_(options_.lease),
      mailbox_(std::make_shared<Mailbox>()) {}

LeaderElector::~LeaderElector() { Stop(); }

void LeaderElector::Start() {
  thread_ = std::thread([this] { Run(); });
}

void LeaderElector::Stop() {
  mailbox_->Close();
  if (thread_.joinable()) thread_.join();
}

std::string LeaderElector::holder() const {
  MutexLock lock(mutex_);
  return holder_;
}

bool LeaderElector::AnsweredWithin(Duration age) const {
  const int64_t heard = last_answer_.load(std::memory_order_acquire);
  return heard != INT64_MIN && Now().time_since_epoch().count() - heard <= age.count();
}

void LeaderElector::Run() {
  while (!mailbox_->closed()) {
    const Time now = Now();
    const LeaseStateMachine::Action action = machine_.Next(now);
    PublishState(now);
    if (action.step != LeaseStateMachine::Step::kWait) {
      Send(action);
      continue;
    }
    if (auto answer = mailbox_->Take(action.until)) HandleAnswer(answer->action, answer->result);
  }
  if (const auto release = machine_.Release()) {
    leadership_ends_ = INT64_MIN;
    auto gone = std::make_shared<Mailbox>();
    api_.Update(kLeases, options_.namespace_, options_.name, "",
                ToLease(*release, options_.name, acquired_, TimeText()), [gone](Result<Json> result) {
                  gone->Push({{}, std::move(result)});
                });
    const auto answer = gone->Take(Now() + kReleaseLimit);
    if (!answer || !answer->result.ok())
      log::Warn("lease={} release=failed: the next leader must wait until the Lease expires", options_.name);
  }
}

void LeaderElector::Send(const LeaseStateMachine::Action& action) {
  auto done = [mailbox = mailbox_, action](Result<Json> result) {
    mailbox->Push({action, std::move(result)});
  };
  if (action.step == LeaseStateMachine::Step::kRead)
    return api_.Get(kLeases, options_.namespace_, options_.name, std::move(done));
  const std::string now = TimeText();
  if (acquired_.empty()) acquired_ = now;
  const Json lease = ToLease(action.record, options_.name, acquired_, now);
  if (action.record.revision.empty())
    api_.Create(kLeases, options_.namespace_, lease, std::move(done));
  else
    api_.Update(kLeases, options_.namespace_, options_.name, "", lease, std::move(done));
}

void LeaderElector::HandleAnswer(const LeaseStateMachine::Action& action, const Result<Json>& answer) {
  const Time now = Now();
  if (!answer.ok()) {
    const bool absent =
        action.step == LeaseStateMachine::Step::kRead && answer.error().code == Code::kNotFound;
    if (absent) {
      last_answer_ = now.time_since_epoch().count();
      return machine_.OnRead(std::nullopt, now);
    }
    log::Debug("lease={} error={}", options_.name, answer.error().message);
    return machine_.OnFailed(now);
  }
  last_answer_ = now.time_since_epoch().count();
  const Result<LeaseRecord> record = FromLease(answer.value());
  if (!record.ok()) {
    log::Warn("lease={} error={}", options_.name, record.error().message);
    return machine_.OnFailed(now);
  }
  if (action.step == LeaseStateMachine::Step::kRead)
    machine_.OnRead(record.value(), now);
  else
    machine_.OnWritten(record.value(), now);
}

void LeaderElector::PublishState(Time now) {
  leadership_ends_ = machine_.LeadershipEnds().time_since_epoch().count();
  {
    MutexLock lock(mutex_);
    if (holder_ != machine_.holder()) {
      holder_ = machine_.holder();
      log::Info("lease={} holder={}", options_.name, holder_.empty() ? "none" : holder_);
    }
  }
  if (!elected_ && machine_.Leading(now)) {
    elected_ = true;
    log::Info("lease={} elected=true term={}", options_.name, machine_.term());
    if (options_.on_elected) options_.on_elected(machine_.term());
  }
  if (elected_ && machine_.lost()) {
    elected_ = false;
    log::Error("lease={} lost=true", options_.name);
    if (options_.on_lost) options_.on_lost();
  }
}

}  // namespace ringmaster::election
