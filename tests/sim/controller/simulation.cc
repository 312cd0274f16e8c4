#include "tests/sim/controller/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <utility>

#include "operator/sim/sim_backend.h"
#include "tests/sim/controller/checker.h"

namespace ringmaster::sim {
namespace {

using control::Key;

constexpr Duration kSettleLimit = seconds(900);  // after the last fault
constexpr Duration kCrashPauseMin = seconds(2);  // longer than a request is under way
const Key kKey{"default", "job"};

class Simulation {
 public:
  Simulation(uint64_t seed, Mutation mutation, bool trace)
      : rng_(KeyedRandom(seed, 1)),
        mutation_(mutation),
        trace_(trace),
        faults_(Faults::Draw(rng_)),
        world_(scheduler_, {KeyedRandom(seed, 2), faults_, nullptr, true}),
        checker_(world_, scheduler_),
        backend_(world_, scheduler_, faults_, KeyedRandom(seed, 3)),
        view_(backend_, mutation) {
    world_.Submit(kKey, DrawJob(), DrawSteps());
    StartController();
    scheduler_.After(seconds(1), [this] { UserTick(); });
  }

  RunResult Run() {
    const Time limit = Scheduler::kStart + faults_.until + kSettleLimit;
    while (!checker_.breach() && !(final_wish_ && AtRest()) && scheduler_.now() < limit) {
      Drive();
      const Time wake = controller_ ? controller_->NextWakeup() : kNever;
      if (wake <= scheduler_.NextAt())
        scheduler_.AdvanceTo(wake);
      else
        scheduler_.Step();
    }
    checker_.OnEnd(kKey, AtRest());
    result_.breach = checker_.breach();
    result_.elapsed = scheduler_.elapsed();
    if (const JobTruth* job = world_.Find(kKey)) {
      result_.attempts = job->status.ledger.attempt;
      result_.restarts = job->status.ledger.restarts.total;
      result_.succeeded = job->status.ledger.outcome == core::Outcome::kSucceeded;
      result_.failed = job->status.ledger.outcome == core::Outcome::kFailed;
    }
    return result_;
  }

 private:
  core::Job DrawJob() {
    core::Job job;
    job.name = kKey.name;
    job.native = rng_.Chance(0.7);
    job.min = 1 + static_cast<int32_t>(rng_.Below(3));
    job.replicas = job.min + static_cast<int32_t>(rng_.Below(3));
    job.max = job.replicas + static_cast<int32_t>(rng_.Below(3));
    job.grace = seconds(2 + static_cast<int64_t>(rng_.Below(8)));
    job.max_restarts = rng_.Chance(0.3) ? static_cast<int32_t>(rng_.Below(4)) : 40;
    job.max_without_progress = rng_.Chance(0.3) ? 2 : 30;
    job.backoff_initial = seconds(1);
    job.backoff_max = seconds(8);
    job.startup_limit = rng_.Chance(0.2) ? seconds(10) : seconds(120);
    job.unreachable_node_limit = seconds(5);
    if (rng_.Chance(0.1)) job.active_deadline = seconds(40);
    if (rng_.Chance(0.1)) job.ttl = seconds(20);
    job.suspend = rng_.Chance(0.05);
    if (rng_.Chance(0.1)) job.clean_pods = core::CleanPods::kAll;
    if (rng_.Chance(0.2)) {
      core::Rule uncharged;
      uncharged.exit_codes = {Checker::kUnchargedExitCode};
      uncharged.charge = false;
      job.rules.push_back(std::move(uncharged));
    }
    return job;
  }
  int64_t DrawSteps() { return 100 + static_cast<int64_t>(rng_.Below(300)); }

  void StartController() {
    process_ += 1;
    backend_.Restart();
    control::Controller::Options options;
    options.seed = rng_.Next();
    options.decide = Mutate(mutation_);
    options.on_decision = [this](const Key&, const core::Observed& o, const core::Decision& d, Time now) {
      result_.decisions += 1;
      checker_.OnDecision(o, d, now);
      if (trace_ && (!d.actions.empty() || d.reason != last_reason_))
        fmt::print("{:>7} ms  {}\n            -> {}\n", ToMs(scheduler_.elapsed()), core::ToString(o, now),
                   core::ToString(d));
      last_reason_ = d.reason;
    };
    controller_ = std::make_unique<control::Controller>(view_, std::move(options));
    backend_.Subscribe([this](const Key& key) { changed_.insert(key); });
    changed_.insert(kKey);
  }

  void CrashController() {
    if (trace_) fmt::print("{:>7} ms  *** the controller crashes\n", ToMs(scheduler_.elapsed()));
    result_.crashes += 1;
    controller_.reset();
    process_ += 1;
    changed_.clear();
    world_.LoseCoordinator(kKey);
    scheduler_.After(kCrashPauseMin + milliseconds(rng_.Below(4000)), [this] { StartController(); });
  }

  // Lets the controller do all it wants to do now.
  void Drive() {
    while (controller_) {
      for (const Key& key : std::exchange(changed_, {})) controller_->On(control::Changed{key}, Now());
      std::vector<control::Command> commands = controller_->TakeCommands(Now());
      if (commands.empty()) return;
      for (control::Command& command : commands) {
        if (world_.faulty() && rng_.Chance(faults_.controller_crash)) return CrashController();
        CarryOut(std::move(command));
      }
    }
  }

  void CarryOut(control::Command command) {
    const uint64_t process = process_;
    if (auto* write = std::get_if<control::DoWrite>(&command)) {
      backend_.Execute(std::move(write->write), [this, process, id = write->id](Result<control::Revision> r) {
        if (process != process_) return;
        if (mutation_ == Mutation::kAmbiguousIsDone && !r.ok() && r.error().code == Code::kAmbiguous)
          r = control::Revision{0};
        controller_->On(control::WriteDone{id, std::move(r)}, Now());
      });
    } else if (auto* read = std::get_if<control::DoRead>(&command)) {
      backend_.ReadThrough(read->key, [this, process, id = read->id](Status r) {
        if (process == process_) controller_->On(control::ReadDone{id, std::move(r)}, Now());
      });
    } else if (auto* record = std::get_if<control::DoRecord>(&command)) {
      backend_.Record(record->key, record->event);
    }
  }

  void UserTick() {
    if (world_.Find(kKey) == nullptr && !gone_for_good_) {
      world_.Submit(kKey, DrawJob(), DrawSteps());
    } else if (world_.faulty()) {
      if (rng_.Chance(faults_.user_edit)) Edit();
    } else if (!final_wish_) {
      final_wish_ = true;
      gone_for_good_ = rng_.Chance(0.05);
      if (gone_for_good_) world_.Delete(kKey);
      const bool suspend = rng_.Chance(0.1);
      // No edit that changes nothing: it would wake a controller that has gone to sleep by mistake.
      if (const JobTruth* job = world_.Find(kKey); job != nullptr && job->job.suspend != suspend)
        world_.Change(kKey, [suspend](core::Job& wish) { wish.suspend = suspend; });
    }
    scheduler_.After(seconds(1), [this] { UserTick(); });
  }

  void Edit() {
    const JobTruth* job = world_.Find(kKey);
    if (job == nullptr) return;
    switch (rng_.Below(8)) {
      case 0:
      case 1:
      case 2:
        world_.Change(kKey, [](core::Job& j) { j.suspend = !j.suspend; });
        break;
      case 3:
      case 4:
      case 5: {
        const auto replicas = 1 + static_cast<int32_t>(rng_.Below(8));
        world_.Change(kKey, [replicas](core::Job& j) { j.replicas = replicas; });
        break;
      }
      case 6:
        for (const auto& [name, p] : job->pods) {
          if (!p.pod.alive() || p.stuck) continue;
          const std::string victim = name;
          world_.DeletePodByHand(kKey, victim);
          break;
        }
        break;
      default:
        if (rng_.Chance(0.3)) world_.Delete(kKey);
        break;
    }
  }

  bool AtRest() const {
    const JobTruth* job = world_.Find(kKey);
    if (job == nullptr) return gone_for_good_ || final_wish_;
    const core::Ledger& ledger = job->status.ledger;
    const bool over = ledger.outcome != core::Outcome::kNone || (ledger.suspended && job->job.suspend);
    return over && std::none_of(job->pods.begin(), job->pods.end(),
                                [](const auto& item) { return item.second.pod.alive(); });
  }

  Time Now() const { return scheduler_.now(); }

  SplitMix64 rng_;
  const Mutation mutation_;
  const bool trace_;
  Faults faults_;
  Scheduler scheduler_;
  World world_;
  Checker checker_;
  SimBackend backend_;
  MutatedView view_;
  std::unique_ptr<control::Controller> controller_;
  uint64_t process_ = 0;
  std::set<Key> changed_;
  std::string last_reason_;
  bool final_wish_ = false;
  bool gone_for_good_ = false;
  RunResult result_;
};

}  // namespace

RunResult RunSeed(uint64_t seed, Mutation mutation, bool trace) {
  return Simulation(seed, mutation, trace).Run();
}

}  // namespace ringmaster::sim
