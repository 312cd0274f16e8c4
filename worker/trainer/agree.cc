// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/agree.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "worker/compute/device/build.h"

namespace ringmaster::trainer {

Status AgreeOnDevice(fabric::Communicator* comm, int root, device::Device* device) {
  if (comm->world() == 1) return Ok();
  std::string fingerprint = device->Fingerprint();
  std::string plan = device->Plan();
  std::array<uint64_t, 2> sizes = {fingerprint.size(), plan.size()};
  RM_TRY(comm->Broadcast(std::as_writable_bytes(std::span(sizes)), root));
  const std::string own = fingerprint;
  const std::string own_plan = plan;
  fingerprint.resize(sizes[0]);
  plan.resize(sizes[1]);
  RM_TRY(comm->Broadcast(std::as_writable_bytes(std::span(fingerprint)), root));
  RM_TRY(comm->Broadcast(std::as_writable_bytes(std::span(plan)), root));
  if (fingerprint != own) {
    return Error{
        Code::kConflict,
        fmt::format("this worker computes on {}, the others on {}: the coordinator should have refused it",
                    own, fingerprint)};
  }
  if (plan == own_plan) return Ok();
  const Status adopted = device->AdoptPlan(plan);
  if (!adopted.ok()) return Error{Code::kConflict, "plan of the root: " + adopted.error().message};
  return Ok();
}

Result<std::optional<rendezvous::ValidationResult>> AgreeOnValidation(
    fabric::Communicator* comm, int root, const std::optional<rendezvous::ValidationResult>& own) {
  if (comm->world() == 1) return own;
  struct {
    int64_t step = -1;  // -1: none
    double loss = 0;
    double accuracy = 0;
    uint64_t has_accuracy = 0;
  } sent;
  if (own.has_value())
    sent = {own->step, own->loss, own->accuracy.value_or(0), own->accuracy.has_value() ? 1U : 0U};
  RM_TRY(comm->Broadcast(std::as_writable_bytes(std::span(&sent, 1)), root));
  std::optional<rendezvous::ValidationResult> newest;
  if (sent.step < 0) return newest;
  newest = rendezvous::ValidationResult{sent.step, sent.loss, std::nullopt};
  if (sent.has_accuracy != 0) newest->accuracy = sent.accuracy;
  return newest;
}

Json DescribeDevice(const device::Device& device) {
  return {
      {"fingerprint", device.Fingerprint()}, {"plan", device.Plan()}, {"build", device::BuildOfNumerics()}};
}

std::string DifferentBuild(const Json& meta) {
  const std::string own = device::BuildOfNumerics();
  if (!meta.contains("device")) return "";
  const auto build = JsonString(meta["device"], "build");
  const std::string theirs = build.ok() ? *build : "another revision";  // of a release before this field
  if (theirs == own) return "";
  return fmt::format("the checkpoint was written by a build with {}, this build has {}", theirs, own);
}

void AdoptDevicePlan(const Json& meta, device::Device* device) {
  if (!meta.contains("device")) return;
  if (const std::string difference = DifferentBuild(meta); !difference.empty())
    log::Warn("{}: training continues with different rounding", difference);
  const auto fingerprint = JsonString(meta["device"], "fingerprint");
  const auto plan = JsonString(meta["device"], "plan");
  if (!fingerprint.ok() || !plan.ok()) return;
  if (*fingerprint != device->Fingerprint()) {
    log::Warn("the checkpoint was written on {}, this is {}: training continues with different rounding",
              *fingerprint, device->Fingerprint());
    return;
  }
  const Status adopted = device->AdoptPlan(*plan);
  if (!adopted.ok())
    log::Warn("the checkpoint's plan: {}; using this device's own plan", adopted.error().message);
}

}  // namespace ringmaster::trainer
