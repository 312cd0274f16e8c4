// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/controller/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "tests/sim/controller/checker.h"
#include "tests/sim/controller/process.h"

namespace ringmaster::sim {
namespace {

using control::Key;

constexpr Duration kSettleLimit = seconds(1200);  // after the last fault
constexpr Duration kCrashPauseMin = seconds(2);   // longer than most requests take
constexpr Duration kDeposedMax = seconds(8);      // how long a deposed leader may continue
const Key kKeys[] = {{"default", "job"}, {"default", "rival"}, {"default", "third"}};

class Simulation {
 public:
  Simulation(uint64_t seed, Mutation mutation, bool trace)
      : rng_(KeyedRandom(seed, 1)),
        success_(KeyedRandom(seed, 20)),
        roles_(KeyedRandom(seed, 21)),
        preempt_(KeyedRandom(seed, 23)),
        topology_(KeyedRandom(seed, 26)),
        must_try_(SplitMix64(KeyedRandom(seed, 30)).Chance(0.3)),
        rival_priority_(static_cast<int32_t>(SplitMix64(KeyedRandom(seed, 22)).Below(3)) - 1),
        third_priority_((rival_priority_ + 2 + static_cast<int32_t>(KeyedRandom(seed, 24) % 2)) % 3 - 1),
        ages_(DrawAges(KeyedRandom(seed, 31))),
        mutation_(mutation),
        trace_(trace),
        faults_(Faults::Draw(rng_)),
        kueue_(KeyedRandom(seed, 25)),
        has_kueue_(kueue_.Chance(0.4)),
        default_(KeyedRandom(seed, 28)),
        slices_(KeyedRandom(seed, 29)),
        surplus_(KeyedRandom(seed, 32)),
        has_default_(has_kueue_ && default_.Chance(0.5)),
        world_(scheduler_, DrawWorld(KeyedRandom(seed, 2))),
        checker_(world_, scheduler_) {
    for (uint64_t i = 0; i < 2; ++i)
      processes_.push_back(std::make_unique<Process>(world_, scheduler_, faults_,
                                                     BackendOptions(KeyedRandom(seed, 3 + i)), mutation));
    checker_.SetTurns(BackendOptions(0).priorities, BackendOptions(0).ages);
    if (faults_.clock > 0) checker_.ClocksAreWrong();
    autoscaler_ = rng_.Chance(0.2);
    jobs_ = world_.provider() != core::GangProvider::kNone && rng_.Chance(0.4) ? 2 : 1;
    if (jobs_ == 2 && preempt_.Chance(0.8)) jobs_ = 3;
    for (size_t i = 0; i < jobs_; ++i) Submit(kKeys[i]);
    StartLeader();
    scheduler_.After(seconds(1), [this] { UserTick(); });
  }

  RunResult Run() {
    const Time limit = Scheduler::kStart + faults_.until + kSettleLimit;
    while (!checker_.breach() && !(final_spec_set_ && AtRest()) && scheduler_.now() < limit) {
      Time wake = kNever;
      for (auto& process : processes_) {
        Drive(*process);
        if (process->alive()) wake = std::min(wake, process->controller->NextWakeup());
      }
      if (wake <= scheduler_.NextAt())
        scheduler_.AdvanceTo(wake);
      else
        scheduler_.Step();
    }
    for (size_t i = 0; i < jobs_; ++i) checker_.OnEnd(kKeys[i], AtRest(kKeys[i]));
    result_.breach = checker_.breach();
    result_.elapsed = scheduler_.elapsed();
    for (size_t i = 0; i < jobs_; ++i) {
      const JobTruth* job = world_.Find(kKeys[i]);
      if (job == nullptr) continue;
      result_.attempts += job->status.ledger.attempt;
      result_.restarts += job->status.ledger.restarts.total;
      result_.succeeded += job->status.ledger.outcome == core::Outcome::kSucceeded ? 1 : 0;
      result_.failed += job->status.ledger.outcome == core::Outcome::kFailed ? 1 : 0;
    }
    return result_;
  }

 private:
  void Submit(const Key& key) {
    core::Job job = DrawJob(key);
    const int64_t steps = DrawSteps();
    job.slices = has_kueue_ && slices_.Chance(0.5);
    job.surplus =
        has_kueue_ && job.in_place && !job.slices && job.policy.roles.empty() && surplus_.Chance(0.7);
    world_.Submit(key, std::move(job), steps, has_kueue_ && kueue_.Chance(0.8) ? "queue" : "");
  }

  World::Options DrawWorld(uint64_t seed) {
    if (has_kueue_ && kueue_.Chance(0.8)) faults_.eviction = 0.1 * kueue_.Uniform();
    SplitMix64 outage(KeyedRandom(seed, 26));
    if (outage.Chance(0.3)) faults_.scheduler_away = 0.1 * outage.Uniform();
    World::Options options;
    options.seed = seed;
    options.faults = faults_;
    options.provider = rng_.Chance(0.7)   ? core::GangProvider::kGate
                       : rng_.Chance(0.6) ? core::GangProvider::kScheduler
                                          : core::GangProvider::kNone;
    // There is room for one job, but not always for two.
    int32_t places = kMostPods + static_cast<int32_t>(rng_.Below(2));
    while (places > 0) {
      const auto node = std::min(places, 1 + static_cast<int32_t>(rng_.Below(3)));
      options.pod_capacities.push_back(node);
      places -= node;
    }
    DrawDomains(options);
    options.accepts_any_term = mutation_ == Mutation::kAgentsObeyAnyLeader;
    return options;
  }

  void DrawDomains(World::Options& options) {
    const uint64_t racks = 1 + topology_.Below(3);
    for (const int32_t places : options.pod_capacities) {
      const bool labelled = topology_.Chance(0.95);
      options.domains.push_back(labelled ? fmt::format("rack-{}", topology_.Below(racks)) : "");
      if (labelled) room_in_[options.domains.back()] += places;
    }
  }

  // Names say nothing about the order in which jobs came.
  static std::map<Key, int64_t> DrawAges(uint64_t seed) {
    SplitMix64 ages(seed);
    std::map<Key, int64_t> drawn;
    for (const Key& key : kKeys) drawn[key] = static_cast<int64_t>(ages.Below(100));
    return drawn;
  }

  SimBackend::Options BackendOptions(uint64_t seed) {
    SimBackend::Options options;
    options.seed = seed;
    options.must_try = must_try_;
    options.priorities[kKeys[1]] = rival_priority_;
    options.priorities[kKeys[2]] = third_priority_;
    options.scatters = mutation_ == Mutation::kScattersGang;
    options.forgets_domain = mutation_ == Mutation::kForgetsDomain;
    options.forgets_ages = mutation_ == Mutation::kForgetsAges;
    options.ages = ages_;
    options.on_reserved = [this](const Key& key, const Placing& placing) {
      checker_.OnReserved(key, placing);
    };
    return options;
  }

  core::Job DrawJob(const Key& key) {
    core::Job job;
    job.name = key.name;
    job.in_place = rng_.Chance(autoscaler_ ? 0.3 : 0.7);
    job.min = 1 + static_cast<int32_t>(rng_.Below(3));
    job.replicas = job.min + static_cast<int32_t>(rng_.Below(3));
    job.max = job.replicas + static_cast<int32_t>(rng_.Below(3));
    job.grace = seconds(2 + static_cast<int64_t>(rng_.Below(8)));
    job.max_restarts = rng_.Chance(0.3) ? static_cast<int32_t>(rng_.Below(4)) : 40;
    job.max_without_progress = rng_.Chance(0.3) ? 2 : 30;
    job.backoff_initial = seconds(1);
    job.backoff_max = seconds(8);
    job.startup_limit = rng_.Chance(0.2) ? seconds(10) : seconds(120);
    job.unreachable_node_limit = Checker::kUnreachableLimit;
    job.node_exclusion = seconds(rng_.Chance(0.5) ? 0 : 10 + static_cast<int64_t>(rng_.Below(40)));
    job.gang_timeout = seconds(10 + static_cast<int64_t>(rng_.Below(40)));
    job.autoscaler = autoscaler_;
    if (rng_.Chance(0.1)) job.active_deadline = seconds(40);
    if (rng_.Chance(0.1)) job.ttl = seconds(20);
    job.suspend = rng_.Chance(0.05);
    if (rng_.Chance(0.1)) job.clean_pods = core::CleanPods::kAll;
    if (rng_.Chance(0.2)) {
      core::Rule uncharged;
      uncharged.exit_codes = {Checker::kUnchargedExitCode};
      uncharged.charge = false;
      uncharged.exclude_node = true;
      job.rules.push_back(std::move(uncharged));
    }
    job.preempt = preempt_.Chance(0.6);
    if (!job.in_place && success_.Chance(0.3)) job.success = core::Success::kRank0;
    if (job.in_place && roles_.Chance(0.3)) {
      // The nodes have room for every job, and such a gang does not run with less.
      job.policy.roles = {{"chief"}, {"ps", 1}};
      job.min = job.max = job.replicas = 1 + static_cast<int32_t>(roles_.Below(4));
    }
    DrawTopology(job);
    return job;
  }

  void DrawTopology(core::Job& job) {
    if (world_.provider() != core::GangProvider::kGate) return;
    if (topology_.Chance(0.3)) job.topology_preferred = "rack";
    int32_t largest = 0;
    for (const auto& [rack, places] : room_in_) largest = std::max(largest, places);
    if (!topology_.Chance(0.4) || !job.topology_preferred.empty() || !job.policy.roles.empty() ||
        largest == 0)
      return;
    job.topology_required = "rack";
    job.max = std::min(job.max, largest);
    job.replicas = std::min(job.replicas, job.max);
    job.min = std::min(job.min, job.replicas);
  }
  int64_t DrawSteps() { return 100 + static_cast<int64_t>(rng_.Below(300)); }

  // ---- leaders

  Process* Free() {
    for (auto& process : processes_)
      if (!process->alive()) return process.get();
    return nullptr;
  }

  void StartLeader() {
    Process* process = Free();
    if (process == nullptr) return;
    leader_ = process;
    process->life += 1;
    world_.SetTerm(++term_);
    process->backend.Restart(term_);
    if (world_.faulty() && faults_.clock > 0) DrawClock(*process);
    control::Controller::Options options;
    options.seed = rng_.Next();
    options.max_in_flight = 1 + rng_.Below(8);
    options.decide = Mutate(mutation_);
    options.on_decision = [this, process](const Key& key, const core::Observed& o, const core::Decision& d,
                                          Time now) {
      result_.decisions += 1;
      checker_.OnDecision(o, d, now);
      std::string& last = last_reason_[key];
      if (trace_ && (!d.actions.empty() || d.reason != last))
        fmt::print("{:>7} ms  {}{}\n            -> {}\n", ToMs(scheduler_.elapsed()),
                   process == leader_ ? "" : "(deposed) ", core::ToString(o, now), core::ToString(d));
      last = d.reason;
    };
    process->controller = std::make_unique<control::Controller>(process->view, std::move(options));
    process->backend.Subscribe([process](const Key& key) { process->changed.insert(key); });
    for (const Key& key : process->backend.Keys()) process->controller->On(control::Changed{key}, Now());
  }

  void End(Process& process) {
    process.controller.reset();
    process.life += 1;
    process.changed.clear();
    process.backend.Kill();
  }

  void Crash(Process& process) {
    Say("the controller crashes");
    result_.crashes += 1;
    End(process);
    if (&process != leader_) return;
    leader_ = nullptr;
    const uint64_t longest = rng_.Chance(faults_.long_absence) ? 60'000 : 4000;
    scheduler_.After(kCrashPauseMin + milliseconds(rng_.Below(longest)), [this] {
      if (leader_ == nullptr) StartLeader();
    });
  }

  // Starts another leader, which the current one has not noticed yet.
  void Depose() {
    Process* old = leader_;
    if (old == nullptr || !old->alive() || Free() == nullptr) return;
    Say("the leader is deposed and continues");
    result_.crashes += 1;
    StartLeader();
    scheduler_.After(milliseconds(rng_.Below(static_cast<uint64_t>(ToMs(kDeposedMax)))),
                     [this, old, life = old->life] {
                       if (old->life == life) End(*old);
                     });
  }

  void DrawClock(Process& process) {
    const Duration most = rng_.Chance(0.7) ? seconds(4) : seconds(3600);
    const auto span = static_cast<uint64_t>(2 * ToMs(most));
    process.backend.SetClock(milliseconds(rng_.Below(span)) - most);
    for (size_t i = 0; i < jobs_; ++i) process.changed.insert(kKeys[i]);
  }

  // Carries out all commands of the controller.
  void Drive(Process& process) {
    while (process.alive() && !checker_.breach()) {
      for (const Key& key : std::exchange(process.changed, {}))
        process.controller->On(control::Changed{key}, Now());
      std::vector<control::Command> commands = process.controller->TakeCommands(Now());
      if (commands.empty()) return;
      for (control::Command& command : commands) {
        if (world_.faulty() && rng_.Chance(faults_.controller_crash)) return Crash(process);
        CarryOut(process, std::move(command));
      }
    }
  }

  void CarryOut(Process& process, control::Command command) {
    Process* p = &process;
    const uint64_t life = process.life;
    if (auto* write = std::get_if<control::DoWrite>(&command)) {
      process.backend.Execute(
          std::move(write->write), [this, p, life, id = write->id](Result<control::Revision> r) {
            if (life != p->life) return;
            if (mutation_ == Mutation::kAmbiguousIsDone && !r.ok() && r.error().code == Code::kAmbiguous)
              r = control::Revision{0};
            p->controller->On(control::WriteDone{id, std::move(r)}, Now());
          });
    } else if (auto* read = std::get_if<control::DoRead>(&command)) {
      process.backend.ReadThrough(read->key, [this, p, life, id = read->id](Status r) {
        if (life == p->life) p->controller->On(control::ReadDone{id, std::move(r)}, Now());
      });
    } else if (auto* record = std::get_if<control::DoRecord>(&command)) {
      process.backend.Record(record->key, record->event);
    }
  }

  // ---- users

  void UserTick() {
    checker_.OnTick(leader_ != nullptr);
    for (size_t i = 0; i < jobs_; ++i) {
      const Key& key = kKeys[i];
      if (world_.Find(key) == nullptr && !finally_deleted_.contains(key))
        Submit(key);
      else if (world_.faulty() && rng_.Chance(faults_.user_edit * (JustBegun(key) ? 4 : 1)))
        Edit(key);
      if (has_kueue_ && world_.faulty() && kueue_.Chance(faults_.user_edit * 0.2)) {
        static constexpr const char* kQueues[] = {"", "queue", "other"};
        world_.SetQueue(key, kQueues[kueue_.Below(3)]);
      }
    }
    if (has_default_ && world_.faulty() && default_.Chance(0.02))
      world_.SetDefaultQueue(!world_.default_queue());
    if (world_.faulty()) {
      Interfere();
    } else if (!final_spec_set_) {
      final_spec_set_ = true;
      if (has_default_) world_.SetDefaultQueue(true);  // jobs may wait in it
      for (size_t i = 0; i < jobs_; ++i) SetFinalSpec(kKeys[i]);
    }
    scheduler_.After(seconds(1), [this] { UserTick(); });
  }

  // Whether the job's first pods exist but may not be in the view yet: a critical moment for an edit.
  bool JustBegun(const Key& key) const {
    const JobTruth* job = world_.Find(key);
    return job != nullptr && std::any_of(job->pods.begin(), job->pods.end(), [&](const auto& item) {
             return Now() - item.second.pod.created < seconds(2);
           });
  }

  void SetFinalSpec(const Key& key) {
    if (rng_.Chance(0.05)) {
      finally_deleted_.insert(key);
      world_.Delete(key, DrawCascade());
    }
    const bool suspend = rng_.Chance(0.1);
    // Avoid an edit without a change: it would wake a controller that wrongly sleeps.
    if (const JobTruth* job = world_.Find(key); job != nullptr && job->job.suspend != suspend)
      world_.Change(key, [suspend](core::Job& j) { j.suspend = suspend; });
  }

  // Faults outside the job: leaders, clocks, quotas, namespaces, other users.
  void Interfere() {
    if (rng_.Chance(faults_.deposed)) Depose();
    if (leader_ != nullptr && rng_.Chance(faults_.clock)) {
      Say("the clock is set");
      DrawClock(*leader_);
    }
    if (rng_.Chance(faults_.quota))
      world_.SetQuota(rng_.Chance(0.5) ? std::nullopt
                                       : std::optional<int32_t>(static_cast<int32_t>(rng_.Below(kMostPods))));
    const Key& key = kKeys[rng_.Below(jobs_)];
    const JobTruth* job = world_.Find(key);
    if (job == nullptr || !rng_.Chance(faults_.by_hand)) return;
    if (rng_.Chance(0.05)) {
      Say("the namespace is deleted");
      world_.DeleteNamespace();
    } else if (rng_.Chance(0.6)) {
      Say("a user deletes a service");
      world_.DamageSupport(key);
    } else {
      const int64_t attempt = job->status.ledger.attempt + static_cast<int64_t>(rng_.Below(2));
      const std::string name = core::PodName(key.name, attempt, static_cast<int32_t>(rng_.Below(3)));
      if (!job->pods.contains(name)) world_.TakeName(key, name);
    }
  }

  void Edit(const Key& key) {
    const JobTruth* job = world_.Find(key);
    if (job == nullptr) return;
    switch (rng_.Below(8)) {
      case 0:
      case 1:
      case 2:
        world_.Change(key, [](core::Job& j) { j.suspend = !j.suspend; });
        break;
      case 3:
      case 4:
      case 5: {
        const auto replicas = 1 + static_cast<int32_t>(rng_.Below(8));
        world_.Change(key, [replicas](core::Job& j) {
          j.replicas = replicas;
          if (!j.policy.roles.empty()) j.replicas = j.min = j.max = 1 + replicas % 4;
        });
        break;
      }
      case 6:
        for (const auto& [name, p] : job->pods) {
          if (!p.pod.alive() || p.stuck) continue;
          const std::string victim = name;
          world_.DeletePodByHand(key, victim);
          break;
        }
        break;
      default:
        if (rng_.Chance(0.3)) world_.Delete(key, DrawCascade());
        break;
    }
  }

  Cascade DrawCascade() {
    static constexpr Cascade kAll[] = {Cascade::kForeground, Cascade::kBackground, Cascade::kOrphan};
    return kAll[rng_.Below(3)];
  }

  // ---- the end

  bool AtRest() const {
    return std::all_of(kKeys, kKeys + jobs_, [this](const Key& key) { return AtRest(key); });
  }

  bool AtRest(const Key& key) const {
    const JobTruth* job = world_.Find(key);
    const auto& strays = world_.StraysOf(key);
    const auto held = [](const auto& item) { return item.second.pod.tracked; };
    if (std::any_of(strays.begin(), strays.end(), held)) return false;
    const auto& workloads = world_.WorkloadsOf(key);
    const auto quota_held = [](const WorkloadTruth& w) { return w.workload.held; };
    if (std::any_of(workloads.begin(), workloads.end(), quota_held)) return false;
    if (job == nullptr) return finally_deleted_.contains(key) || final_spec_set_;
    const core::Ledger& ledger = job->status.ledger;
    const bool over = ledger.outcome != core::Outcome::kNone || (ledger.suspended && job->job.suspend);
    return over && std::none_of(job->pods.begin(), job->pods.end(),
                                [&](const auto& item) { return item.second.pod.alive() || held(item); });
  }

  void Say(const char* what) const {
    if (trace_) fmt::print("{:>7} ms  *** {}\n", ToMs(scheduler_.elapsed()), what);
  }
  Time Now() const { return scheduler_.now(); }

  static constexpr int32_t kMostPods = 7;  // of one job

  SplitMix64 rng_;
  SplitMix64 success_;   // which ranks decide; separate, so that seeds keep what they draw otherwise
  SplitMix64 roles_;     // which jobs have roles; the same
  SplitMix64 preempt_;   // which jobs preempt; the same
  SplitMix64 topology_;  // of the nodes and jobs; the same
  std::map<std::string, int32_t> room_in_;  // places in each rack
  const bool must_try_;                     // whether pods are admitted is asked before they exist
  const int32_t rival_priority_;            // of the second job; the first one has 0
  const int32_t third_priority_;            // not the same as the second's
  const std::map<Key, int64_t> ages_;       // the smaller, the older
  const Mutation mutation_;
  const bool trace_;
  Faults faults_;
  SplitMix64 kueue_;        // of the runs with Kueue; separate, too
  const bool has_kueue_;    // jobs may have a queue
  SplitMix64 default_;      // of the LocalQueue `default`; separate, too
  SplitMix64 slices_;       // of jobs that grow by slices; separate, too
  SplitMix64 surplus_;      // of jobs with a surplus; separate, too
  const bool has_default_;  // it comes and goes
  Scheduler scheduler_;
  World world_;
  Checker checker_;
  std::vector<std::unique_ptr<Process>> processes_;
  Process* leader_ = nullptr;  // the newest; a deposed one may still run
  World::Term term_ = 0;
  size_t jobs_ = 1;
  bool autoscaler_ = false;
  std::map<Key, std::string> last_reason_;
  std::set<Key> finally_deleted_;
  bool final_spec_set_ = false;
  RunResult result_;
};

}  // namespace

RunResult RunSeed(uint64_t seed, Mutation mutation, bool trace) {
  return Simulation(seed, mutation, trace).Run();
}

}  // namespace ringmaster::sim
