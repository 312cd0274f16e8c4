// SPDX-License-Identifier: Apache-2.0

// Undoes what libgomp does to the main thread when it is loaded: with OMP_PROC_BIND, OMP_PLACES or
// GOMP_CPU_AFFINITY in the environment it binds the thread to the first place. These variables are meant for
// the programs of users. All threads and processes that start later would share that CPU.
#pragma once

namespace ringmaster {

// Gives the calling thread the CPUs that the process had before the constructors of its libraries ran. Call
// it first in main. The source belongs to executables only: shared libraries cannot have its early function.
void RestoreInitialAffinity();

}  // namespace ringmaster
