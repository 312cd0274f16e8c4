// SPDX-License-Identifier: Apache-2.0

// RoomPlanner: the room of a cluster, and which gang gets it when.
//
// It owns the free capacity (core/capacity.h), the places that gangs have reserved, the queue of the gangs
// that wait (core/room_queue.h), and the requests that jobs of lower priority make room (core/preemption.h).
// A backend reports what it observes: nodes and pods to capacity(), jobs to SetJob and RemoveJob. For the
// gate (core::GangProvider::kGate) it calls, in this order:
//   Update   before each decision about a job: the room for its gang, and its turn in the queue;
//   Reserve  when the decision takes the room;
//   Plan     after a change of the queue, of jobs or of pods: who makes room for the head of the queue.
// FitOf answers as Update does, and changes no turn.
//
// Pure: time is an argument. Not thread-safe. Jobs are named NAMESPACE/NAME, and places as PlaceOf names
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/core/capacity/capacity.h"
#include "operator/core/capacity/gang_room.h"
#include "operator/core/model.h"
#include "operator/core/queue/preemption.h"
#include "operator/core/queue/room_queue.h"

namespace ringmaster::core {

class RoomPlanner {
 public:
  // Pods of one gang that wait for room and are alike.
  struct Alike {
    std::vector<int32_t> ranks;
    Capacity::Shape shape;
    bool created = false;      // the pods exist and keep their shape
    Capacity::Shape rather{};  // Capacity::Ask::rather
  };
  // What the room for a job is looked for with.
  struct Gang {
    std::vector<Alike> kinds{};              // the ranks that wait, in the order in which they get places
    std::vector<std::string> peers{};        // places of the gang's pods, if it has a topology
    std::vector<BoundToDomain> bound{};      // pods that may use one domain only
    std::vector<std::string> bound_peers{};  // places of the gang's pods, if `bound` has any
    int32_t priority = 0;
    bool preempts = true;  // its PriorityClass permits it
    int64_t created = 0;   // RoomQueue::Standing::created
  };
  // The room for a gang, as a decision reads it.
  struct Turn {
    Fit fit;
    bool plan = false;  // the head of the queue, or what it needs, has changed: Plan is due
  };

  explicit RoomPlanner(RoomQueue::FairShare shares = {}) : waiting_(std::move(shares)) {}

  // The place of a pod in the capacity.
  static std::string PlaceOf(const std::string& job, int64_t attempt, int32_t rank) {
    return PodName(job, attempt, rank);
  }

  Capacity& capacity() { return capacity_; }
  const Capacity& capacity() const { return capacity_; }
  // Capacity::RoomFor and Capacity::BestFit, which change no answer.
  int32_t RoomFor(const Capacity::Shape& shape, int32_t count, const std::vector<std::string>& peers) const {
    return capacity_.RoomFor(shape, count, peers);
  }
  std::optional<std::string> BestFit(const Capacity::Shape& shape, int32_t pods) const {
    return capacity_.BestFit(shape, pods);
  }
  const RoomQueue& queue() const { return waiting_; }

  // ---- jobs

  // The job exists with this uid and status. `may_wait`: MayWaitForVictims. An earlier job of this name and
  // an attempt that is over lose their places; an ended job leaves the queue. Returns whether places became
  // free.
  bool SetJob(const std::string& job, const std::string& uid, bool may_wait, const Status& status);
  // The job is gone. Returns whether places became free.
  bool RemoveJob(const std::string& job);
  bool Knows(const std::string& job, const std::string& uid) const { return RoomOf(job, uid) != nullptr; }

  // ---- turns

  // Returns the room for the gang. `observed`: with a ledger that has begun.
  Fit FitOf(const std::string& job, const Gang& gang, const Observed& observed) const;
  // Returns the same. The job takes, keeps or gives up its turn in the queue by it.
  Turn Update(const std::string& job, const std::string& uid, const Gang& gang, const Observed& observed,
              Time now);
  // The job does not wait for room now. `looked`: this is known from a look at its gang.
  void Leave(const std::string& job, const std::string& uid, bool looked);
  // The job may not keep its places. Returns whether it had any.
  bool GiveUpPlaces(const std::string& job, const std::string& uid);
  // Claims room for the head again. To be called when pods have started or ended.
  void Refresh() { waiting_.Refresh(capacity_); }
  // RoomQueue::Ready.
  std::vector<std::string> Ready(RoomQueue::Sweep& sweep) { return waiting_.Ready(capacity_, sweep); }

  // ---- reservations

  struct Reservation {
    bool reserved = false;  // all pods have places; otherwise none has
    bool freed = false;     // the job had places that it does not have any more
  };
  // Reserves the places of these pods in place of those that the job has.
  Reservation Reserve(const std::string& job, const std::string& uid, int64_t attempt,
                      const std::vector<Alike>& kinds, const std::vector<std::string>& peers);

  // ---- preemption

  // What the job holds may have changed.
  void HolderChanged(const std::string& job) { holders_.Changed(job); }
  // Returns the jobs whose holders Plan needs; at first all that `all` returns.
  std::set<std::string> JobsToRead(const std::function<std::vector<std::string>()>& all);
  // Decides who makes room for the head of the queue. `read`: what the jobs of JobsToRead hold. Returns the
  // jobs to decide again.
  std::set<std::string> Plan(std::map<std::string, std::optional<RoomHolder>> read);
  // The head of the queue when JobsToRead was called; empty: none that preempts.
  const std::string& asker() const { return asker_; }
  // Returns the room that another job asks for; nullopt: none, or its job does not wait any more.
  std::optional<Preemption> RequestTo(const std::string& job, const std::string& uid, int64_t attempt) const;
  // Returns who makes room for the job; empty: no job.
  std::string PreemptsFor(const std::string& job, const std::string& uid) const;
  // Whether the job that this preemption names still waits for room.
  bool Waits(const Preemption& preemption) const;

 private:
  // What is known of the room of a job.
  struct Room {
    std::string uid;
    int64_t attempt = 0;
    bool may_reserve = false;              // pods of this attempt may have places
    bool may_wait = false;                 // MayWaitForVictims
    std::optional<Preemption> preemption;  // by its ledger
    int64_t reserved_attempt = 0;
    std::vector<std::string> reserved;  // places
    RoomQueue::Standing standing;       // at the last look
    std::optional<Time> room_since;     // since when it has room that it has not reserved
    bool looked = false;
    bool wants_room = false;            // at the last look
    std::optional<Preemption> request;  // room that another job asks for, of this attempt
    int64_t request_attempt = 0;
    std::string preempts;  // the jobs that make room for it
  };
  // The result of a look at the free room.
  struct Look {
    Fit fit;
    size_t short_of = 0;             // the first kind without room for all
    std::vector<std::string> peers;  // the gang's other pods, as that kind finds them
  };

  Room* RoomOf(const std::string& job, const std::string& uid);
  const Room* RoomOf(const std::string& job, const std::string& uid) const;
  bool GiveUp(Room& room);
  static RoomQueue::Standing StandingIn(const Gang& gang, const Observed& observed);
  std::vector<int32_t> Stranded(const Gang& gang, const Observed& observed) const;
  Look FindRoom(const std::string& job, const Gang& gang, const Observed& observed,
                const RoomQueue::Standing& standing) const;
  static RoomQueue::Wait WaitOf(const Gang& gang, Look look, int32_t queued, bool has_room);
  void EndOldTurn(Time now);
  PreemptionPlan PlanFor(const RoomQueue::Wait& wait);
  void Request(const PreemptionPlan& plan, std::set<std::string>& changed);
  void SetPreempts(const std::string& text, std::set<std::string>& changed);

  mutable Capacity capacity_;  // an answer brings its indexes up to date, and gives back the places it tries
  RoomQueue waiting_;
  std::map<std::string, Room> rooms_;  // of every job
  std::set<std::string> preempted_;    // jobs that gave up room for others
  std::set<std::string> requested_;    // jobs with a request for room
  std::string asker_;
  std::string thanked_;  // the job whose `preempts` is set
  RoomHolders holders_;
};

}  // namespace ringmaster::core
