// SPDX-License-Identifier: Apache-2.0

// The agent takes the place of other programs by their names: of Hydra's launcher (mpi_hydra.h), of
// horovodrun (horovod_run.h) and of ssh (mpi_rsh.h). PATH of a pod's program begins with a folder of links to
// the agent (kMpiBin), which finds the real program behind it. Functions read the environment; thread-safe
// apart from that.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::agent {

// Returns the name of a program without its folder.
std::string ProgramName(const std::string& path);

// Whether a path leads to the program of this process.
bool LeadsHere(const std::string& path);

// Returns the real program for `word`, by which this one was called: `word` itself where it is a path to
// another program, or else the first one of this name in PATH that is not a link to this program. Errors:
// kNotFound.
Result<std::string> FindBehindLinks(const std::string& word);

// Replaces this process by the program at `path`. `words`: its arguments, with its name as the first. Returns
// only an exit code of a failure.
int ReplaceProcess(const std::string& path, std::vector<std::string> words);

}  // namespace ringmaster::agent
