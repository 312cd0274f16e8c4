// SPDX-License-Identifier: Apache-2.0

// ringmaster: the command line. Each subcommand is a file of its own; this one only chooses.
//
// Installed as kubectl-ringmaster it is the plugin that kubectl finds by that name: the same commands, told
// as kubectl tells its own.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/log.h"
#include "cli/command.h"

namespace ringmaster::cli {

int Refuse(const Error& error) {
  std::fprintf(stderr, "ringmaster: %s\n", error.message.c_str());
  return kBadInput;
}

bool IsPlugin(std::string_view program) {
  const size_t slash = program.rfind('/');
  return program.substr(slash == std::string_view::npos ? 0 : slash + 1) == "kubectl-ringmaster";
}

constexpr const char* kExamples =
    "Examples:\n"
    "  ringmaster run job.yaml --workers 4        train on this machine\n"
    "  ringmaster validate job.yaml               check a manifest, start nothing\n"
    "  ringmaster sample ringmaster-out/gpt-text --prompt 'In the beginning'\n"
    "  ringmaster status gpt-text                 look at a job on a cluster\n"
    "`ringmaster COMMAND --help` tells more about each.";
constexpr const char* kPluginExamples =
    "Examples:\n"
    "  kubectl ringmaster status gpt-text         one screen: why it is as it is, and each rank\n"
    "  kubectl ringmaster diagnose gpt-text       what keeps it from its next step\n"
    "  kubectl ringmaster logs gpt-text -f        the root cause first, then all ranks\n"
    "  kubectl ringmaster scale gpt-text --replicas 6\n"
    "`kubectl ringmaster COMMAND --help` tells more about each.";

int Main(int argc, char** argv) {
  log::Init("ringmaster");
  const bool plugin = IsPlugin(argv[0]);
  CLI::App app{"Elastic distributed training: workers may come and go, the result has the same bits.",
               plugin ? "kubectl ringmaster" : "ringmaster"};
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(plugin ? kPluginExamples : kExamples);
  int exit_code = kSucceeded;
  AddRun(app, exit_code);
  AddValidate(app, exit_code);
  AddSample(app, exit_code);
  AddExport(app, exit_code);
  AddDevices(app, exit_code);
  AddRender(app, exit_code);
  AddCrd(app, exit_code);
  AddStatus(app, exit_code);
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
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kBadInput;
  }
  return exit_code;
}

}  // namespace ringmaster::cli

int main(int argc, char** argv) { return ringmaster::cli::Main(argc, argv); }
