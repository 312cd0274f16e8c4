// SPDX-License-Identifier: Apache-2.0

// The variables that tell a user's program its place in an incarnation, in the words of its framework. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/messages.h"

namespace ringmaster::agent {

// Returns "NAME=value" for the program that runs as `rank`. Members with equal pods share a machine: they are
// neighbours, and their order is that of the local ranks. REQUIRES: `rank` is an index of order.members.
//
// Every framework: RINGMASTER_INCARNATION, a number that increases with every start of the gang; of workers
// RINGMASTER_RANK and RINGMASTER_WORLD_SIZE, except with mpi and horovod, whose ranks get them from
// mpi_rank.h; in jobs with roles RINGMASTER_ROLE and RINGMASTER_ROLE_INDEX. pytorch, deepspeed: RANK,
// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT, and PET_* for a program
// that is torchrun; deepspeed also LOCAL_SIZE. tensorflow: TF_CONFIG. jax: JAX_COORDINATOR_ADDRESS,
// JAX_NUM_PROCESSES, JAX_PROCESS_ID, and those of a JAXJob: COORDINATOR_ADDRESS, COORDINATOR_PORT,
// NUM_PROCESSES, PROCESS_ID.
std::vector<std::string> ProgramEnvironment(const std::string& framework,
                                            const rendezvous::StartProgram& order, int32_t rank);

// Whether its programs get LOCAL_RANK, by which they select a GPU of their pod.
bool HasLocalRank(const std::string& framework);

// Splits "host:port"; the brackets of an IPv6 address are not part of the host.
std::pair<std::string, std::string> SplitAddress(const std::string& address);

}  // namespace ringmaster::agent
