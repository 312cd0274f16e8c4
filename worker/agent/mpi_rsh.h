// SPDX-License-Identifier: Apache-2.0

// `ringmaster-agent rsh [OPTIONS] HOST COMMAND...` takes the place of ssh for the launchers of MPI: it runs a
// command in another pod of the incarnation (mpi_pod.h), and passes on its standard streams, its exit code
// and signals. Like ssh it joins the words with spaces, and a shell takes them apart; exit code 255 is its
// own.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::agent {

struct RshCommand {
  std::string host;
  std::string command;
};

// Parses the words after the program's name. Options of ssh are skipped. Errors: kInvalid with the usage.
Result<RshCommand> ParseRsh(const std::vector<std::string>& words);

// Returns the exit code.
int RunRsh(const std::vector<std::string>& words);

}  // namespace ringmaster::agent
