// SPDX-License-Identifier: Apache-2.0

#include "cli/run/field_notes.h"

#include "api/launch.h"

namespace ringmaster::cli {

std::vector<std::string> FieldsWithoutEffect(const api::Spec& spec) {
  std::vector<std::string> notes;
  const bool ours =
      spec.framework == "native" || api::UsesLibrary(spec);  // others move their data themselves
  if (spec.network.rdma && !(ours && spec.network.transport == "ucx"))
    notes.push_back("spec.network.rdma does not apply on one machine: shared memory is used" +
                    std::string(ours ? "; spec.network.transport ucx uses RDMA" : ""));
  if (!spec.workers.template_.is_null() && spec.framework == "native")
    notes.push_back("spec.workers.template does not apply on one machine");
  if (!spec.checkpoint.volumeClaim.empty())
    notes.push_back("spec.checkpoint.volumeClaim does not apply on one machine");
  if (spec.suspend)
    notes.push_back("spec.suspend is true: nothing runs until it is false and SIGHUP is sent");
  return notes;
}

}  // namespace ringmaster::cli
