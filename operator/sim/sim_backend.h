// The Backend in front of a World: changes reach the view late, requests and replies get lost, status writes
// conflict for no reason. With Faults::None() it is prompt and reliable. Single-threaded, virtual time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "operator/control/ports.h"
#include "operator/sim/world.h"

namespace ringmaster::sim {

class SimBackend final : public control::Backend {
 public:
  SimBackend(World& world, Scheduler& scheduler, const Faults& faults, uint64_t seed);

  std::optional<control::Snapshot> Observe(const control::Key& key) const override;
  control::Revision Seen(control::Kind kind) const override;
  std::vector<control::Key> Keys() const override;
  void Execute(control::Write write, std::function<void(Result<control::Revision>)> done) override;
  void ReadThrough(const control::Key& key, std::function<void(Status)> done) override;
  void Record(const control::Key&, const core::Event& event) override { events_.push_back(event); }
  void Subscribe(std::function<void(const control::Key&)> changed) override;

  // A new controller process: lists everything anew, forgets subscribers.
  void Restart();

  const std::vector<core::Event>& events() const { return events_; }

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
  };

  void OnJob(const control::Key& key);
  void OnPod(const control::Key& key, const std::string& name);
  void Deliver(control::Kind kind, std::function<void()> what);
  void ReadNow(const control::Key& key);
  void Notify(const control::Key& key);
  Duration Random(Duration most);
  bool Chance(double probability) { return world_.faulty() && rng_.Chance(probability); }

  World& world_;
  Scheduler& scheduler_;
  const Faults faults_;
  SplitMix64 rng_;
  uint64_t process_ = 0;  // rises with Restart: what was on its way to the one before is dropped
  std::map<control::Key, Cached> cache_;
  control::Revision seen_[2] = {0, 0};
  Time last_delivery_[2] = {Scheduler::kStart, Scheduler::kStart};
  std::vector<std::function<void(const control::Key&)>> subscribers_;
  std::vector<core::Event> events_;
};

}  // namespace ringmaster::sim
