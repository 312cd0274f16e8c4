// SPDX-License-Identifier: Apache-2.0

// The ringmaster command line: parses the arguments and runs a subcommand. A newcomer reads command.h first,
// then run/session.h for `ringmaster run` and cluster/cluster.h for the commands about a job on a cluster.
//
// Installed as kubectl-ringmaster, the program is a kubectl plugin with the same subcommands; only its help
// differs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/initial_affinity.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/launch/command_line.h"
#include "cli/write_text.h"

namespace ringmaster::cli {

int Refuse(const Error& error) {
  Print(stderr, "ringmaster: {}\n", error.message);
  return kBadInput;
}

bool IsPlugin(std::string_view program) {
  const size_t slash = program.rfind('/');
  return program.substr(slash == std::string_view::npos ? 0 : slash + 1) == "kubectl-ringmaster";
}

constexpr const char* kExamples =
    "Examples:\n"
    "  ringmaster launch --local --workers 4 -- python3 train.py\n"
    "  ringmaster run job.yaml --workers 4        train on this machine\n"
    "  ringmaster ui ringmaster-out/gpt-text      serve a live page about it\n"
    "  ringmaster validate job.yaml               check a manifest without starting it\n"
    "  ringmaster sample ringmaster-out/gpt-text --prompt 'In the beginning'\n"
    "  ringmaster status gpt-text                 show a job on a cluster\n"
    "`ringmaster COMMAND --help` describes a command.";
constexpr const char* kPluginExamples =
    "Examples:\n"
    "  kubectl ringmaster launch --workers 8 --image IMAGE -- python3 train.py\n"
    "  kubectl ringmaster status gpt-text         show its state, the reason, and each rank\n"
    "  kubectl ringmaster diagnose gpt-text       check what prevents it from committing steps\n"
    "  kubectl ringmaster logs gpt-text -f        print the root cause, then follow all ranks\n"
    "  kubectl ringmaster ui                      serve a page with all jobs, and why each waits\n"
    "  kubectl ringmaster scale gpt-text --replicas 6\n"
    "`kubectl ringmaster COMMAND --help` describes a command.";

// Returns the arguments as the parser takes them: without the program, the last one first.
std::vector<std::string> Arguments(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (!arguments.empty() && arguments.front() == "launch") {
    const CLI::App* const command = app.get_subcommand("launch");
    arguments.erase(arguments.begin());
    arguments = launch::MarkCommand(std::move(arguments), [&](const std::string& flag) {
      const CLI::Option* const option = command->get_option_no_throw(flag);
      return option != nullptr && option->get_items_expected_min() > 0;
    });
    arguments.insert(arguments.begin(), "launch");
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

int Main(int argc, char** argv) {
  log::Init("ringmaster");
  const bool plugin = IsPlugin(argv[0]);
  CLI::App app{"Elastic distributed training: workers may join and leave; the weights stay bit-identical.",
               plugin ? "kubectl ringmaster" : "ringmaster"};
  app.require_subcommand(1);
  app.set_version_flag("--version", VersionText(), "Print the version and exit");
  app.get_formatter()->column_width(34);
  app.footer(plugin ? kPluginExamples : kExamples);
  int exit_code = kSucceeded;
  AddRun(app, exit_code);
  AddLaunch(app, exit_code);
  AddValidate(app, exit_code);
  AddConvert(app, exit_code);
  AddUi(app, exit_code);
  AddSample(app, exit_code);
  AddExport(app, exit_code);
  AddCheckpoints(app, exit_code);
  AddDevices(app, exit_code);
  AddPlot(app, exit_code);
  AddCompare(app, exit_code);
  AddRender(app, exit_code);
  AddCrd(app, exit_code);
  AddAttach(app, exit_code);
  AddCancel(app, exit_code);
  AddStatus(app, exit_code);
  AddQueue(app, exit_code);
  AddDiagnose(app, exit_code);
  AddLogs(app, exit_code);
  AddScale(app, exit_code);
  AddSuspend(app, exit_code);
  AddResume(app, exit_code);
  AddVersion(app, exit_code);
  const auto is_first_word = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_first_word).empty())
    return Refuse({Code::kInvalid,
                   std::string(argv[1]) + ": no such command; `" + app.get_name() + " --help` lists them"});
  try {
    app.parse(Arguments(app, argc, argv));
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kBadInput;
  }
  return exit_code;
}

}  // namespace ringmaster::cli

int main(int argc, char** argv) {
  ringmaster::RestoreInitialAffinity();
  return ringmaster::cli::Main(argc, argv);
}
