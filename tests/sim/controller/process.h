// SPDX-License-Identifier: Apache-2.0

// One process of the controller in a simulated run: the real controller over a faulty backend, with a
// separate term and wall clock. After a restart it is another process.
#pragma once

#include <memory>
#include <set>

#include "tests/sim/controller/mutations.h"
#include "tests/sim/controller/sim_backend.h"

namespace ringmaster::sim {

struct Process {
  Process(World& world, Scheduler& scheduler, const Faults& faults, SimBackend::Options options,
          Mutation mutation)
      : backend(world, scheduler, faults, options), view(backend, mutation) {}

  bool alive() const { return controller != nullptr; }

  SimBackend backend;
  MutatedView view;
  std::unique_ptr<control::Controller> controller;
  uint64_t life = 0;  // increases with every start and end; answers to an earlier life are dropped
  std::set<control::Key> changed;
};

}  // namespace ringmaster::sim
