// SPDX-License-Identifier: Apache-2.0

// Decide: what the operator does next about one job. Start reading here.
//
//   model.h       the input (Observed) and the output (Decision), with the invariants
//   status.h      the ledger, which survives the operator, and the display, which people read
//   decide.cc     the ladder: the first step that applies makes the decision
//   decide_*.cc   its steps: the job's lifecycle, failures, suspected nodes, pods (decide_steps.h)
//   summary.cc    the display: phase, conditions, messages
//   rules.cc      restart rules, back-off, and the kinds of refusal
//   capacity.cc   whether a gang fits onto the nodes, and which places are reserved
//   gang_room.cc  the same for a gang of several shapes
//   room_queue.cc whose turn it is among the gangs that wait for room
//   preemption.cc which jobs make room for the first of them
//   room_planner.cc all of this in one: the room, the queue, reservations and preemption
//
// Everything in this folder is pure, except Capacity: no I/O, no clock, no threads.
#pragma once

#include "operator/core/model.h"
#include "operator/core/queue/room_queue.h"

namespace ringmaster::core {

// Safety margins for reports that lag behind what pods do.
inline constexpr Duration kSilentGuard = seconds(3);    // a younger pod is not considered silent
inline constexpr Duration kAbsenceGuard = seconds(10);  // a younger pod's agent may still be connecting
// How long a node is suspected after one of its workers fell silent. Kubernetes marks a lost node as not
// ready less than a minute after its last heartbeat.
inline constexpr Duration kSuspicionPeriod = seconds(90);
inline constexpr Duration kExitGuard = seconds(2);    // after exit 0 the job's end may still be reported
inline constexpr Duration kDrainGrace = seconds(30);  // the longest grace for pods of an older attempt
// The highest attempt that counts. A pod with a higher one, which only another writer can have created, is
// removed and does not raise the attempt.
inline constexpr int64_t kMaxAttempt = 1'000'000'000;
// The highest rank that counts: the API allows 4,096 workers. Others can create a pod with any name.
inline constexpr int32_t kMaxRank = 4095;
inline constexpr Duration kOverstayMargin = seconds(10);  // after its grace period a pod is removed by force

// The shortest time between two status writes that change only conditions.
inline constexpr Duration kDisplayInterval = seconds(1);
// The display of a starting gang is written when its pods have not changed for this long, when all of them
// run, or at the latest kMaxSettlePeriod after its first pod was created.
inline constexpr Duration kSettlePeriod = seconds(2);
inline constexpr Duration kMaxSettlePeriod = seconds(30);

// How many times Job::gang_timeout a gang stays that waits for nodes and holds none: an autoscaler may add
// some, or other pods end.
inline constexpr int kLimitsForNewNodes = 12;

// A pod's waiting_reason when the scheduler finds no node.
inline constexpr const char* kUnschedulable = "Unschedulable";

// The scheduler of a gang whose pods it has not mentioned for this long does not run. A running one reports
// about a pod that it cannot place within a second, unless thousands wait.
inline constexpr Duration kSchedulerGuard = seconds(10);

// How often a job with a topology is decided again while the scheduler finds no node for one of its pods.
inline constexpr Duration kStrandedInterval = seconds(10);

// How often the message of a gang that waits for room is brought up to date: with thousands of waiting jobs,
// each change of the free capacity would cost thousands of status writes.
inline constexpr Duration kWaitingInterval = seconds(600);
// The same for a job that waits for Kueue.
inline constexpr Duration kQueuedInterval = seconds(60);

// Returns the next decision. Pure: equal arguments give equal decisions.
Decision Decide(const Observed& observed, Time now);

// ---- what a backend needs to know for GangProvider::kGate. These functions take a ledger that has begun.

// Whether the ledger is as the API server created it: it names attempt 1 and nothing else.
bool NotBegun(const Ledger& ledger);
// Returns the world of such a job with the ledger that Decide goes by. REQUIRES: NotBegun.
Observed Begun(const Observed& observed, Time now);
// Whether the job's pods are created only after their places have been reserved. With an autoscaler they are
// not: it adds nodes for pods that the scheduler has refused, and ignores gated ones.
bool ReservesRoom(const Observed& observed);
// The ranks whose pods wait for room: gated ones first, then those that do not exist. Empty when the job
// creates no pods now.
std::vector<int32_t> WaitingRanks(const Observed& observed);
// With how much room (Fit::room) the next decision would reserve more than now; `fit` replaces Observed::fit.
// nullopt: it does not wait for room.
std::optional<int32_t> AwaitedRoom(const Observed& observed, const Fit& fit, Time now);
// For how much room the gang has its turn in the queue: AwaitedRoom, or all of it while there is room that is
// not reserved yet, since the decision about that may have to wait for an earlier write. nullopt: it is not
// in the queue. A backend ends the turn of a gang that does not take its room for kTurnLimit.
std::optional<int32_t> QueuedRoom(const Observed& observed, const Fit& fit, Time now);
inline constexpr Duration kTurnLimit = seconds(10);
// The standing of the job in the queue for room, but for its priority and age.
RoomQueue::Standing StandingOf(const Observed& observed);
// Whether the job may ask others for room now: it knows how much it needs once its ended pods are gone.
bool MayPreempt(const Observed& observed);
// Whether pods of this attempt may have reserved places.
bool MayReserve(const Ledger& ledger, int64_t attempt);
// Whether a job keeps the places that it has reserved. One that Kueue stops before its pods exist does not:
// it might wait for its quota for long, with the room that others have quota for.
bool KeepsPlaces(const Observed& observed);
// The nodes that new pods may not use. Sorted.
std::vector<std::string> ExcludedNodes(const Ledger& ledger, Time now);

// ---- the same for GangProvider::kScheduler

// Whether the scheduler has given nodes to a part of a gang that has not run yet, and leaves it at that.
bool IsTorn(const Observed& observed, Time now);

}  // namespace ringmaster::core
