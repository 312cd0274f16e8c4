// SPDX-License-Identifier: Apache-2.0

#include "operator/control/coordinator_options.h"

namespace ringmaster::control {
namespace {

// A program answers a Prepare when its micro-batch is done, and in its first one it compiles for minutes. Its
// agent detects a hang earlier. What a boundary saves is the work of the step.
constexpr Duration kProgramStatusDeadline = seconds(1800);
constexpr Duration kProgramBoundaryDeadline = seconds(300);

}  // namespace

rendezvous::SetLimits LimitsOf(const core::SetGang& order) {
  return {order.min * order.slots, order.target * order.slots, order.max * order.slots, order.policy};
}

rendezvous::CoordinatorOptions CoordinatorOptionsOf(const std::string& job, const core::SetGang& order) {
  const rendezvous::SetLimits limits = LimitsOf(order);
  rendezvous::CoordinatorOptions options;
  options.job = job;
  options.min = limits.min;
  options.target = limits.target;
  options.max = limits.max;
  options.slots = order.slots;
  if (order.library) {
    options.await_programs = true;
    options.status_deadline = kProgramStatusDeadline;
    options.boundary_deadline = kProgramBoundaryDeadline;
  }
  if (order.programs) {
    rendezvous::ProgramOptions& programs = options.programs.emplace();
    programs.stop_grace = order.stop_grace;
    programs.accounted = order.accounted;
    programs.policy = order.policy;
  }
  return options;
}

}  // namespace ringmaster::control
