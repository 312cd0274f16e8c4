// SPDX-License-Identifier: Apache-2.0

// What runs in the pods, roughly: native jobs have a coordinator that trains with whoever is there, waits
// below min, stops on order, and reports; other frameworks need all pods at once and lose all with one.
#pragma once

#include "operator/sim/world.h"

namespace ringmaster::sim {

class GangModel {
 public:
  static constexpr Duration kTick = milliseconds(500);

  static void Tick(World& world, const control::Key& key);

 private:
  // Nothing is heard of it, and nothing reaches it.
  static bool Away(const World& world, const PodTruth& p);
  static void TickNative(World& world, const control::Key& key, JobTruth& job);
  static void TickForeign(World& world, const control::Key& key, JobTruth& job);
};

}  // namespace ringmaster::sim
