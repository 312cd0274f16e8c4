// SPDX-License-Identifier: Apache-2.0

// The options that a command line gives to torchrun. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace ringmaster::cli::convert {

struct Torchrun {
  bool found = false;                // the command is torchrun, python -m torch.distributed.run or tune run
  bool in_shell = false;             // torchrun is a part of a shell's command line, which stays as it is
  bool sets_processes = false;       // --nproc-per-node is given
  std::vector<std::string> removed;  // options that say where the ranks of the gang are, or how many
  std::vector<std::string> command;  // without them
  size_t options = 0;                // index in `command` of the first option
  bool needs_option = false;         // tune starts several processes only when it has an option of torchrun
};

// Removes the rendezvous options, which override what the agent sets for each incarnation.
Torchrun ReadTorchrun(const std::vector<std::string>& command);

}  // namespace ringmaster::cli::convert
