// SPDX-License-Identifier: Apache-2.0

// Hydra and horovodrun give ranks the environment of their launcher, in all pods. Variables that the launcher
// has from its own pod, such as names of interfaces, devices and addresses, are wrong in the others. So the
// program of the launcher's pod marks what the launcher starts with, and the wrapper of a rank (mpi_rank.h)
// replaces what is still as marked by what its own pod has. What the command of the launcher sets or changes
// reaches the ranks. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ringmaster::agent {

// The marks, in the environment of a launcher and of what it starts.
inline constexpr const char* kMpiMarksVariable = "RINGMASTER_MPI_MARKS";

// Returns the marks of these variables ("NAME=value"): eight hexadecimal digits for each, without the values.
std::string MarksOf(const std::vector<std::string>& variables);

// Returns the names and values that a rank with the environment `own` takes from its pod. `pod`: the
// environment of the pod's daemon. `marks`: of the launcher; empty: nothing is known of its pod. What only
// the launcher has stays, as with every MPI.
std::vector<std::pair<std::string, std::string>> VariablesOfPod(const std::vector<std::string>& own,
                                                                const std::vector<std::string>& pod,
                                                                std::string_view marks);

}  // namespace ringmaster::agent
