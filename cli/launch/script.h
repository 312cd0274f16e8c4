// SPDX-License-Identifier: Apache-2.0

// What a command line and the script in it say about how they train. A guess from imports that users can
// overrule by flags. Pure, except ReadScript.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringmaster::cli::launch {

struct Training {
  std::string framework;  // of spec.framework
  std::string kind;       // of spec.launch.kind: library or ranks
  bool operator==(const Training&) const = default;
};

// Puts python3 before a command that begins with a Python script, as torchrun allows.
std::vector<std::string> WithInterpreter(std::vector<std::string> command);

// Returns the path of the Python script or module in the command; empty if there is none.
std::string ScriptOf(const std::vector<std::string>& command);

// Returns the script if it must be among the files of the working folder: a word of the command with a
// relative path. The image may have a module of `python3 -m`, and a line for a shell may create its script.
// Otherwise empty.
std::string ScriptInFolder(const std::vector<std::string>& command);

// Returns the text of ScriptOf(command); empty if it cannot be read.
std::string ReadScript(const std::vector<std::string>& command);

// Returns the modules that a Python program imports, as "ringmaster.torch".
std::vector<std::string> ImportsOf(std::string_view script);

// kind library: the script imports ringmaster.torch, ringmaster.jax or ringmaster.numpy.
Training Guess(const std::vector<std::string>& command, std::string_view script);

// Returns a name for the job: that of the script, or else of the program.
std::string NameFor(const std::vector<std::string>& command);

}  // namespace ringmaster::cli::launch
