// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/controller/gang_model.h"

#include <algorithm>
#include <utility>

namespace ringmaster::sim {

using rendezvous::GangPhase;

namespace {

constexpr Duration kJoinDelay = milliseconds(800);
constexpr int64_t kStepsPerTick = 2;
constexpr int64_t kCheckpointEvery = 10;
constexpr Duration kForeignWork = seconds(12);
constexpr double kEndsNow = 0.1;  // per tick, when the work is done

bool IsMember(const PodTruth& p, int64_t attempt, Time now) {
  return p.pod.attempt == attempt && p.pod.phase == core::PodPhase::kRunning &&
         now - p.pod.started >= kJoinDelay;
}

}  // namespace

bool GangModel::CutOff(const World& world, const PodTruth& p) { return p.stuck || world.Unreachable(p); }

void GangModel::Tick(World& world, const control::Key& key) {
  auto it = world.jobs_.find(key);
  if (it == world.jobs_.end()) return;
  if (it->second.job.in_place)
    TickNative(world, key, it->second);
  else
    TickForeign(world, key, it->second);
}

void GangModel::TickNative(World& world, const control::Key& key, JobTruth& job) {
  GangState& gang = job.gang;
  if (!gang.order) return;
  const rendezvous::Report before = gang.report;
  rendezvous::Report& report = gang.report;
  const Time now = world.scheduler_.now();

  std::vector<std::string> members;
  int32_t workers = 0;  // of the members
  report.live_pods.clear();
  report.silent_pods.clear();
  report.heard_pods.clear();
  for (const auto& [name, p] : job.pods) {
    const bool heard = !p.silent && !CutOff(world, p);
    if (p.pod.attempt == gang.order->attempt && p.pod.phase == core::PodPhase::kRunning && p.joined && !heard)
      report.silent_pods.push_back(name);
    if (heard && p.pod.phase == core::PodPhase::kRunning && p.joined) report.heard_pods.push_back(name);
    if (!heard || !IsMember(p, gang.order->attempt, now)) continue;
    job.pods.at(name).joined = true;
    members.push_back(p.pod.uid);
    workers += p.pod.rank < core::kRanksPerRole ? 1 : 0;
    report.live_pods.push_back(name);
  }
  const auto lost = std::count_if(gang.members.begin(), gang.members.end(), [&](const std::string& uid) {
    return std::find(members.begin(), members.end(), uid) == members.end();
  });
  const bool over = report.phase == GangPhase::kStopped || report.phase == GangPhase::kFinished;
  if (lost > 0 && !over) {
    report.worker_failures += static_cast<int32_t>(lost);
    report.failures_without_progress += 1;
    report.last_failure = rendezvous::FailureRecord{"some-pod", "eof", 137, "connection lost"};
    if (members.empty()) gang.step = gang.checkpoint_step;
  }
  if (members != gang.members && !over) {
    gang.members = members;
    report.generation += 1;
    report.generations += 1;
  }

  const auto size = static_cast<int32_t>(members.size());
  if (over) {
    // The pods end below.
  } else if (gang.order->stop) {
    if (size == 0 || report.phase == GangPhase::kStopping) {
      report.phase = GangPhase::kStopped;
      gang.checkpoint_step = gang.step;
    } else {
      report.phase = GangPhase::kStopping;
    }
  } else if (workers < gang.order->min || size - workers < job.job.RolePods()) {
    report.phase = report.generations > 0 && size > 0 ? GangPhase::kPaused : GangPhase::kForming;
  } else {
    report.phase = GangPhase::kActive;
    gang.step = std::min(gang.total_steps, gang.step + kStepsPerTick);
    gang.newest_attempt = gang.order->attempt;
    gang.checkpoint_step = gang.step / kCheckpointEvery * kCheckpointEvery;
    report.failures_without_progress = 0;
    if (gang.step == gang.total_steps) {
      report.phase = GangPhase::kFinished;
      report.done = rendezvous::Done{};
      report.done->finished = true;
      report.done->step = gang.step;
    }
  }
  report.step = report.phase == GangPhase::kForming ? report.step : gang.step;
  report.total_steps = gang.total_steps;
  report.checkpoint_step = gang.checkpoint_step;
  if (report != before) world.ReportChanged(key);
  // Must be last: the end of a deleted job's last pod destroys the job, including `job` and `gang`.
  if (over) {
    const bool finished = report.phase == GangPhase::kFinished;
    for (const std::string& uid : members) world.EndAgent(key, uid, finished);
  }
}

// The workers end one after the other when the work is done.
void GangModel::TickForeign(World& world, const control::Key& key, JobTruth& job) {
  const int64_t attempt = job.status.ledger.attempt;
  if (job.foreign_attempt != attempt) {
    job.foreign_attempt = attempt;
    job.foreign_work = Duration{0};
    job.foreign_done.clear();
  }
  bool lost = false;
  std::vector<std::pair<std::string, int32_t>> alive;  // uid, rank
  for (const auto& [name, p] : job.pods) {
    if (p.pod.attempt != attempt || job.foreign_done.contains(p.pod.rank)) continue;
    if (p.pod.phase == core::PodPhase::kFailed || CutOff(world, p) || p.pod.deleting()) lost = true;
    if (p.pod.phase != core::PodPhase::kRunning || CutOff(world, p)) continue;
    alive.emplace_back(p.pod.uid, p.pod.rank);
  }
  const bool complete =
      alive.size() + job.foreign_done.size() == static_cast<size_t>(job.status.ledger.gang_size);
  if (lost && !alive.empty() && job.foreign_work > Duration{0}) {
    for (const auto& [uid, rank] : alive) world.EndPod(key, uid, 75, "lost a peer");
  } else if (complete && !lost) {
    job.foreign_work += kTick;
    if (job.foreign_work < kForeignWork) return;
    for (const auto& [uid, rank] : alive) {
      if (!world.rng_.Chance(kEndsNow)) continue;
      job.foreign_done.insert(rank);
      world.EndPod(key, uid, 0, "");
    }
  }
}

}  // namespace ringmaster::sim
