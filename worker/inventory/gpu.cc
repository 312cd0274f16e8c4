// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/inventory.h"
#include "worker/inventory/nvml.h"

namespace ringmaster::inventory {

GpuList QueryGpus(const std::string& library, std::vector<std::string>* notes) {
  const auto nvml = Nvml::Open(library);
  if (!nvml.ok()) {
    notes->push_back("GPUs: " + nvml.error().message);
    return {};
  }
  GpuList answer;
  answer.driver = (*nvml)->Driver();
  answer.gpus = (*nvml)->Gpus(notes);
  return answer;
}

}  // namespace ringmaster::inventory
