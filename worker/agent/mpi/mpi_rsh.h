// SPDX-License-Identifier: Apache-2.0

// `ringmaster-agent rsh [OPTIONS] HOST [OPTIONS] COMMAND...` takes the place of ssh for launchers: it runs a
// command in another pod of the incarnation (mpi_pod.h), and passes on its standard streams, its exit code
// and signals. Like ssh it joins the words with spaces, and a shell takes them apart; exit code 255 is its
// own. horovodrun calls it by the name ssh, which PATH leads here; for a host that is no pod of the
// incarnation it is the real ssh then.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ringmaster::agent {

inline constexpr std::string_view kSsh = "ssh";

struct RshCommand {
  std::string host;
  std::string command;
};

// Parses the words after the program's name. Options of ssh are skipped. Errors: kInvalid with the usage.
Result<RshCommand> ParseRsh(const std::vector<std::string>& words);

// Returns the exit code. `words`: the arguments.
int RunRsh(const std::vector<std::string>& words);
// The same by the name ssh. `words`: as this process was called.
int RunSsh(const std::vector<std::string>& words);

}  // namespace ringmaster::agent
