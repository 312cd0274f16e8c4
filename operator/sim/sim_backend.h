// SPDX-License-Identifier: Apache-2.0

// The Backend in front of a World: changes reach the view late, each kind in its own stream; requests and
// replies get lost or late, status writes conflict for no reason, the wall clock of the process is wrong.
// With Faults::None() it is prompt and reliable. One of these is one process of the controller (after
// Restart, another one), with a term of its own. Single-threaded, virtual time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "operator/control/backend.h"
#include "operator/core/capacity.h"
#include "operator/sim/world.h"

namespace ringmaster::sim {

class SimBackend final : public control::Backend {
 public:
  struct Options {
    uint64_t seed = 1;
    // Planted mistakes.
    bool forgets_reservations = false;  // released gangs take no room until they are bound
    bool keeps_reservations = false;    // of pods that are gone
    bool never_says_full = false;       // gates are taken away whether or not there is room
  };

  SimBackend(World& world, Scheduler& scheduler, const Faults& faults, Options options);

  std::optional<control::Snapshot> Observe(const control::Key& key) const override;
  control::Revision Seen(control::Kind kind, const control::Key& key) const override;
  std::vector<control::Key> Keys() const override;
  void Execute(control::Write write, std::function<void(Result<control::Revision>)> done) override;
  void ReadThrough(const control::Key& key, std::function<void(Status)> done) override;
  void Record(const control::Key&, const core::Event&) override {}
  void Subscribe(std::function<void(const control::Key&)> changed) override;

  // A new process, leader of this term: lists everything anew, forgets subscribers.
  void Restart(World::Term term);
  // The process is gone; what it sent is still on its way.
  void Kill();
  // How far its wall clock is ahead of the world's.
  void SetClock(Duration ahead) { clock_ = ahead; }

 private:
  struct JobPart {
    core::Job job;
    core::Status status;
    control::Revision revision = 0;
  };
  struct Cached {
    std::optional<JobPart> job;
    std::map<std::string, core::Pod> pods;
    // A live read saw everything up to here: what the watch brings of before is old news.
    control::Revision floor[2] = {0, 0};
    std::optional<core::PrepareGang> support;
    uint64_t support_version = 0;
    std::optional<core::SetGang> order;
  };
  enum Stream : size_t { kJobs, kPods, kSupport, kNodes, kStreams };

  void OnJob(const control::Key& key);
  void OnPod(const control::Key& key, const std::string& name);
  void OnSupport(const control::Key& key);
  void OnNode(const std::string& name);
  void Deliver(Stream stream, std::function<void()> what);
  void LearnPod(Cached& cached, core::Pod pod, bool live);
  void ForgetPod(Cached& cached, const std::string& name);
  void LearnNode(const std::string& name, bool lost);
  void ReadNow(const control::Key& key);
  void Send(control::Write write, Duration there, Duration back, bool lost_reply,
            std::function<void(Result<control::Revision>)> done);
  void Acknowledge(const control::Write& write, const Result<control::Revision>& result, uint64_t version);
  void Notify(const control::Key& key);
  void NotifyWaiting();
  void NotifyOn(const std::string& node);
  Duration Random(Duration most);
  bool Chance(double probability) { return world_.faulty() && rng_.Chance(probability); }
  bool Alive() const { return term_ > 0; }

  World& world_;
  Scheduler& scheduler_;
  const Faults faults_;
  const Options options_;
  SplitMix64 rng_;
  uint64_t process_ = 0;  // rises with Restart: what was on its way to the one before is dropped
  World::Term term_ = 0;  // 0: no process
  Duration clock_{0};
  std::map<control::Key, Cached> cache_;
  core::Capacity capacity_;
  std::set<std::string> not_ready_;  // nodes
  uint64_t support_version_ = 0;
  control::Revision seen_[2] = {0, 0};
  Time last_delivery_[kStreams];
  std::vector<std::function<void(const control::Key&)>> subscribers_;
};

}  // namespace ringmaster::sim
