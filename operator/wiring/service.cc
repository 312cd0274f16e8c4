#include "operator/wiring/service.h"

#include "operator/wiring/names.h"

namespace ringmaster::wiring {

Json ServiceOf(const api::TrainingJob& job, const std::string& job_uid) {
  Json service = NewObject("v1", "Service", ServiceName(job.metadata.name), job, job_uid);
  service["spec"] = {{"clusterIP", "None"},
                     {"publishNotReadyAddresses", true},
                     {"selector", {{kJobLabel, job.metadata.name}}}};
  return service;
}

}  // namespace ringmaster::wiring
