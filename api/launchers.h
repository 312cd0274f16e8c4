// SPDX-License-Identifier: Apache-2.0

// Recognises launchers, the programs that start the ranks of a job, in the command of a pod template: as a
// word of the command, behind programs such as env and numactl, as a module of Python, and in the text of a
// shell. One in a script file is not seen. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ringmaster::api {

enum class LauncherKind { kTorchrun, kDeepspeed, kAccelerate, kHorovodrun, kMpirun, kSrun };

struct LauncherCall {
  LauncherKind kind;
  std::string name;                // as it is written: torchrun, python -m torch.distributed.run
  std::vector<std::string> words;  // what follows
  bool in_shell = false;           // the words may use variables that the agent sets
};

// Returns the launchers in the command and the args of the container that trains, in their order.
std::vector<LauncherCall> FindLaunchers(const Json& pod_template);

// Returns the launchers in these words.
std::vector<LauncherCall> FindLaunchersIn(const std::vector<std::string>& words);

struct LauncherOption {
  std::string name;   // rdzv_backend for --rdzv-backend=c10d
  std::string value;  // empty: none follows
};

// Returns the options of a launcher before the script that it starts. An option is taken to have the word
// behind it as its value unless that begins with '-'.
std::vector<LauncherOption> OptionsOf(const LauncherCall& call);

}  // namespace ringmaster::api
