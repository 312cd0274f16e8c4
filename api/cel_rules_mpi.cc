// SPDX-License-Identifier: Apache-2.0

#include "api/cel_rule.h"

namespace ringmaster::api {

const std::vector<CelRule>& MpiRules() {
  static const std::vector<CelRule> kMpiRules = {
      {"spec",
       "launch.mpi",
       {"framework"},
       "self.framework == 'mpi'",
       "has(self.launch.mpi)",
       "required when spec.framework is mpi: openmpi, mpich or intel, as installed in the image",
       kMissing},
      {"spec",
       "launch.mpi",
       {"framework"},
       "has(self.launch.mpi)",
       "self.framework == 'mpi'",
       "allowed only when spec.framework is mpi (got \"{self.framework}\")",
       kForbidden},
      {"spec",
       "lifecycle.success",
       {"framework", "launch.kind", "lifecycle.success"},
       "self.framework == 'mpi' && self.launch.kind != 'library' && has(self.lifecycle.success)",
       "self.lifecycle.success == 'Launcher'",
       "must be Launcher when spec.framework is mpi (got \"{self.lifecycle.success}\"): the command "
       "runs in the first worker only; remove it"},
      {"spec",
       "lifecycle.success",
       {"framework", "launch.kind", "lifecycle.success"},
       "!(self.framework in ['native', 'mpi']) && self.launch.kind != 'library' && "
       "has(self.lifecycle.success)",
       "self.lifecycle.success != 'Launcher'",
       "must not be Launcher when spec.framework is {self.framework}, which has no launcher; use Rank0"},
      {"spec",
       "launch.kind",
       {"framework", "launch.kind"},
       "self.framework == 'mpi'",
       "self.launch.kind != 'none'",
       "must be ranks when spec.framework is mpi: mpirun reaches the other workers through their agents"},
      {"spec",
       "launch.preload",
       {"framework", "launch.kind"},
       "self.framework == 'mpi' && self.launch.kind == 'ranks' && has(self.launch.preload)",
       "size(self.launch.preload) == 0",
       "must be empty when spec.framework is mpi: the launcher starts the ranks; remove it"},
      {"spec",
       "workers",
       {"framework", "workers.min", "workers.max"},
       "self.framework == 'mpi'",
       "!has(self.workers.min) && !has(self.workers.max)",
       "min and max do not apply when spec.framework is mpi: MPI_COMM_WORLD has a fixed size; remove them, "
       "and change replicas instead"}};
  return kMpiRules;
}

}  // namespace ringmaster::api
