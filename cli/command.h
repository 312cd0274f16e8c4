// SPDX-License-Identifier: Apache-2.0

// The interface between main.cc and the subcommands: exit codes, error output, and one entry function per
// command.
//
// An entry function adds its subcommand to the app. When the user chose that subcommand, its callback runs it
// and sets `exit_code`. Main thread only.
#pragma once

#include <string>

#include "base/result.h"

namespace CLI {
class App;
}

namespace ringmaster::cli {

// Scripts depend on these numbers: never change them.
enum ExitCode : int {
  kSucceeded = 0,
  kFailed = 1,
  kBadInput = 2,
  kNotEnded = 3,  // the job exists, and its end was not seen
  kInterrupted = 130,
};

// What `ringmaster version` and `ringmaster --version` print.
const char* VersionText();

// Prints "ringmaster: <message>" to stderr and returns kBadInput.
int Refuse(const Error& error);

void AddRun(CLI::App& app, int& exit_code);
void AddLaunch(CLI::App& app, int& exit_code);
void AddValidate(CLI::App& app, int& exit_code);
void AddConvert(CLI::App& app, int& exit_code);
void AddCompare(CLI::App& app, int& exit_code);
void AddUi(CLI::App& app, int& exit_code);
void AddSample(CLI::App& app, int& exit_code);
void AddExport(CLI::App& app, int& exit_code);
void AddCheckpoints(CLI::App& app, int& exit_code);
void AddDevices(CLI::App& app, int& exit_code);
void AddCrd(CLI::App& app, int& exit_code);
void AddPlot(CLI::App& app, int& exit_code);
void AddRender(CLI::App& app, int& exit_code);
void AddVersion(CLI::App& app, int& exit_code);
// Commands for a job on a cluster.
void AddAttach(CLI::App& app, int& exit_code);
void AddCancel(CLI::App& app, int& exit_code);
void AddStatus(CLI::App& app, int& exit_code);
void AddQueue(CLI::App& app, int& exit_code);
void AddLogs(CLI::App& app, int& exit_code);
void AddDiagnose(CLI::App& app, int& exit_code);
void AddScale(CLI::App& app, int& exit_code);
void AddSuspend(CLI::App& app, int& exit_code);
void AddResume(CLI::App& app, int& exit_code);

}  // namespace ringmaster::cli
