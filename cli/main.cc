// ringmaster: the command line. Each subcommand is a file of its own; this one only chooses.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/log.h"
#include "cli/command.h"

namespace ringmaster::cli {

int Refuse(const Error& error) {
  std::fprintf(stderr, "ringmaster: %s\n", error.message.c_str());
  return kBadInput;
}

int Main(int argc, char** argv) {
  log::Init("ringmaster");
  CLI::App app{"Elastic distributed training: workers may come and go, the result has the same bits.",
               "ringmaster"};
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(
      "Examples:\n"
      "  ringmaster run job.yaml --workers 4        train on this machine\n"
      "  ringmaster validate job.yaml               check a manifest, start nothing\n"
      "  ringmaster sample ringmaster-out/gpt-text --prompt 'In the beginning'\n"
      "`ringmaster COMMAND --help` tells more about each.");
  int exit_code = kSucceeded;
  AddRun(app, exit_code);
  AddValidate(app, exit_code);
  AddSample(app, exit_code);
  AddExport(app, exit_code);
  AddDevices(app, exit_code);
  AddRender(app, exit_code);
  AddCrd(app, exit_code);
  AddVersion(app, exit_code);
  const auto is_first_word = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_first_word).empty())
    return Refuse(
        {Code::kInvalid, std::string(argv[1]) + ": no such command; `ringmaster --help` lists them"});
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
