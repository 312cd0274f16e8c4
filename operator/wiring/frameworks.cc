// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/frameworks.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "operator/core/model.h"
#include "operator/wiring/names.h"

namespace ringmaster::wiring {
namespace {

constexpr int32_t kRendezvousPort = 29500;  // the default of torchrun
constexpr int32_t kTensorflowPort = 2222;   // the port of TensorFlow's examples

class Rendezvous {
 public:
  Rendezvous(const api::TrainingJob& job, int32_t rank, const Context& context, Json& env)
      : job_(job), rank_(rank), context_(context), env_(env) {}

  void Pytorch() {
    const std::string& slots = job_.spec.workers.slots;
    const std::string port = std::to_string(PortOf(0, kRendezvousPort));
    Add("MASTER_ADDR", HostOf(0));
    Add("MASTER_PORT", port);
    Add("PET_NNODES", std::to_string(context_.size));
    Add("PET_NODE_RANK", std::to_string(rank_));
    Add("PET_NPROC_PER_NODE", slots);
    Add("PET_MASTER_ADDR", HostOf(0));
    Add("PET_MASTER_PORT", port);
    // Keeps this attempt from using what an earlier one left in a store.
    Add("PET_RDZV_ID", fmt::format("{}-{}", job_.metadata.name, context_.attempt));
    if (slots != "1") return;  // the launcher assigns ranks to processes
    Add("RANK", std::to_string(rank_));
    Add("WORLD_SIZE", std::to_string(context_.size));
    Add("LOCAL_RANK", "0");
    Add("LOCAL_WORLD_SIZE", "1");
  }

  void Tensorflow() {
    Json workers = Json::array();
    for (int32_t i = 0; i < context_.size; ++i)
      workers.push_back(fmt::format("{}:{}", HostOf(i), PortOf(i, kTensorflowPort)));
    const Json config = {{"cluster", {{"worker", std::move(workers)}}},
                         {"task", {{"type", "worker"}, {"index", rank_}}}};
    Add("TF_CONFIG", config.dump());
  }

  void Jax() {
    Add("JAX_COORDINATOR_ADDRESS", fmt::format("{}:{}", HostOf(0), PortOf(0, kRendezvousPort)));
    Add("JAX_NUM_PROCESSES", std::to_string(context_.size));
    Add("JAX_PROCESS_ID", std::to_string(rank_));
    // What the program of a JAXJob reads by itself.
    Add("COORDINATOR_ADDRESS", HostOf(0));
    Add("COORDINATOR_PORT", std::to_string(PortOf(0, kRendezvousPort)));
    Add("NUM_PROCESSES", std::to_string(context_.size));
    Add("PROCESS_ID", std::to_string(rank_));
  }

 private:
  void Add(const char* name, std::string value) {
    env_.push_back({{"name", name}, {"value", std::move(value)}});
  }
  // The name that a pod's resolver tries first, for every cluster domain.
  std::string HostOf(int32_t rank) const {
    return core::PodName(job_.metadata.name, context_.attempt, rank) + "." + ServiceName(job_.metadata.name);
  }
  // On the host network this is the last port of the pod: UCX takes the others first.
  int32_t PortOf(int32_t rank, int32_t otherwise) const {
    if (context_.host_port_base == 0) return otherwise;
    return context_.host_port_base + (rank + 1) * kHostPortsPerRank - 1;
  }

  const api::TrainingJob& job_;
  const int32_t rank_;
  const Context& context_;
  Json& env_;
};

}  // namespace

void AddRendezvous(const api::TrainingJob& job, int32_t rank, const Context& context, Json& env) {
  const std::string& framework = job.spec.framework;
  Rendezvous rendezvous(job, rank, context, env);
  if (framework == "pytorch" || framework == "deepspeed") rendezvous.Pytorch();
  if (framework == "tensorflow") rendezvous.Tensorflow();
  if (framework == "jax") rendezvous.Jax();
}

}  // namespace ringmaster::wiring
