// SPDX-License-Identifier: Apache-2.0

// Hydra and horovodrun give ranks the environment of their launcher, in all pods. Variables that the launcher
// has from its own pod, such as names of interfaces, devices and addresses, are wrong in the others. So the
// program of the launcher's pod marks what the launcher starts with, and the wrapper of a rank (mpi_rank.h)
// replaces what is still as marked by what its own pod has. What the command of the launcher sets or changes
// reaches the ranks, and so does what only the template of the launcher sets, as with every MPI. What
// Kubernetes has computed for the launcher's pod, such as its address, does not. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ringmaster::agent {

// The marks, in the environment of a launcher and of what it starts.
inline constexpr const char* kMpiMarksVariable = "RINGMASTER_MPI_MARKS";

// The names of the variables that Kubernetes computes for a pod (valueFrom.fieldRef), separated by commas.
inline constexpr const char* kMpiPodVariables = "RINGMASTER_MPI_POD_VARIABLES";

// Returns the marks of these variables ("NAME=value"): eight hexadecimal digits for each, without the values.
std::string MarksOf(const std::vector<std::string>& variables);

// Returns the names and values that a rank with the environment `own` takes from its pod. `pod`: the
// environment of the pod's daemon. `marks`: of the launcher; empty: nothing is known of its pod.
std::vector<std::pair<std::string, std::string>> VariablesOfPod(const std::vector<std::string>& own,
                                                                const std::vector<std::string>& pod,
                                                                std::string_view marks);

// Returns the names of the variables in `own` that the launcher has from Kubernetes and `pod` does not have.
// `computed`: the launcher's kMpiPodVariables.
std::vector<std::string> VariablesOfLauncherPod(const std::vector<std::string>& own,
                                                const std::vector<std::string>& pod, std::string_view marks,
                                                std::string_view computed);

}  // namespace ringmaster::agent
