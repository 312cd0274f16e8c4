// SPDX-License-Identifier: Apache-2.0

// GangModel: a rough model of the programs in the pods. A native job has a coordinator that trains with the
// available workers, waits below min, stops on order, and reports. Other frameworks need all pods and lose
// all with one.
#pragma once

#include "tests/sim/controller/world.h"

namespace ringmaster::sim {

class GangModel {
 public:
  static constexpr Duration kTick = milliseconds(500);

  static void Tick(World& world, const control::Key& key);

 private:
  // Whether the pod is cut off: no message from it or to it arrives.
  static bool CutOff(const World& world, const PodTruth& p);
  static void TickNative(World& world, const control::Key& key, JobTruth& job);
  static void TickForeign(World& world, const control::Key& key, JobTruth& job);
};

}  // namespace ringmaster::sim
