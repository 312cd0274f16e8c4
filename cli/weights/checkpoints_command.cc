// SPDX-License-Identifier: Apache-2.0

// `ringmaster checkpoints`: lists, shows, verifies, removes and copies the checkpoints in a folder.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/pid_lock.h"
#include "cli/command.h"
#include "cli/plot/progress_bar.h"
#include "cli/weights/checkpoint_folder.h"
#include "cli/weights/checkpoint_views.h"
#include "cli/write_text.h"
#include "worker/checkpoint/catalog.h"
#include "worker/checkpoint/maintenance.h"
#include "worker/checkpoint/names.h"

namespace ringmaster::cli {
namespace {

using checkpoint::CatalogEntry;

struct CheckpointFlags {
  std::string path;
  std::vector<std::string> steps;
  std::string to;
  bool json = false;
  bool force = false;
};

void PrintJson(const Json& json) {
  // Names of files may be invalid UTF-8.
  Print(stdout, "{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

// Returns the entries of the steps that the user named; without any, those of all checkpoints.
Result<std::vector<CatalogEntry>> Chosen(const CheckpointPlace& place) {
  std::vector<CatalogEntry> chosen;
  for (const int64_t step : place.steps) {
    RM_ASSIGN(CatalogEntry entry, checkpoint::FindStep(place.folder, step));
    chosen.push_back(std::move(entry));
  }
  if (!chosen.empty()) return chosen;
  RM_ASSIGN(auto entries, checkpoint::ListFolder(place.folder));
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(chosen),
               [](const CatalogEntry& entry) { return entry.is_checkpoint(); });
  if (chosen.empty()) return Error{Code::kNotFound, place.folder + ": has no checkpoint"};
  return chosen;
}

Result<int> Ls(const CheckpointFlags& flags) {
  RM_ASSIGN(const CheckpointPlace place, FindCheckpoints(flags.path, {}));
  RM_ASSIGN(auto entries, checkpoint::ListFolder(place.folder));
  if (!place.steps.empty())
    std::erase_if(entries, [&](const CatalogEntry& entry) { return entry.step != place.steps.front(); });
  if (flags.json)
    PrintJson(ListJson(place.folder, entries));
  else
    WriteText(stdout, ListText(place.folder, entries));
  return kSucceeded;
}

Result<int> Show(const CheckpointFlags& flags) {
  RM_ASSIGN(const CheckpointPlace place, FindCheckpoints(flags.path, flags.steps));
  RM_ASSIGN(const auto chosen, Chosen(place));
  const CatalogEntry& entry = chosen.back();  // without a step, the newest
  if (flags.json)
    PrintJson(ShowJson(place.folder, entry));
  else
    WriteText(stdout, ShowText(place.folder, entry));
  return kSucceeded;
}

Result<int> Verify(const CheckpointFlags& flags) {
  RM_ASSIGN(const CheckpointPlace place, FindCheckpoints(flags.path, flags.steps));
  RM_ASSIGN(auto chosen, Chosen(place));
  std::vector<Verified> verified;
  for (CatalogEntry& entry : chosen) {
    ProgressBar bar("reading step " + std::to_string(entry.step));
    auto damage = checkpoint::FindDamage(place.folder + "/" + entry.name, bar.counter());
    verified.push_back({std::move(entry), std::move(damage)});
  }
  if (flags.json)
    PrintJson(VerifyJson(place.folder, verified));
  else
    WriteText(stdout, VerifyText(verified));
  const bool whole =
      std::all_of(verified.begin(), verified.end(), [](const Verified& one) { return one.damage.empty(); });
  return whole ? kSucceeded : kFailed;
}

// Locks the output folders of runs: a run of a program does not lock the folder of its checkpoints.
Result<std::vector<Fd>> LockOutput(const CheckpointPlace& place) {
  std::vector<Fd> locks;
  for (const std::string& path : place.locks) {
    auto lock = HoldPidLock(path);
    if (!lock.ok() && lock.error().code == Code::kConflict)
      return Error{
          Code::kConflict,
          fmt::format("{}: in use by another `ringmaster` process (pid {}); wait for it, or stop it, and "
                      "try again",
                      path, lock.error().message)};
    RM_TRY(lock.ok() ? Ok() : Status(lock.error()));
    locks.push_back(std::move(*lock));
  }
  return locks;
}

Result<int> Rm(const CheckpointFlags& flags) {
  RM_ASSIGN(const CheckpointPlace place, FindCheckpoints(flags.path, flags.steps));
  if (place.steps.empty())
    return Error{Code::kInvalid, "give the steps to remove, as `ringmaster checkpoints ls` shows them"};
  RM_ASSIGN(const std::vector<Fd> locks, LockOutput(place));
  RM_ASSIGN(const auto chosen, Chosen(place));
  {
    ProgressBar bar("looking for the newest whole checkpoint");
    RM_TRY(checkpoint::RemoveSteps(place.folder, place.steps, flags.force, bar.counter()));
  }
  for (const CatalogEntry& entry : chosen) {
    Print(stdout, "removed step {} ({})\n", entry.step, SizeText(entry.bytes));
    RM_ASSIGN(const bool stays, IsFolder(place.folder + "/" + entry.name));
    if (stays)
      Print(stdout, "{}/{} stays, with files that Ringmaster did not write\n", place.folder, entry.name);
  }
  return kSucceeded;
}

Result<int> Fork(const CheckpointFlags& flags) {
  RM_ASSIGN(const CheckpointPlace place, FindCheckpoints(flags.path, flags.steps));
  RM_ASSIGN(const auto chosen, Chosen(place));
  const CatalogEntry& entry = chosen.back();  // without a step, the newest
  std::string copy;
  {
    ProgressBar bar("copying step " + std::to_string(entry.step));
    RM_ASSIGN(copy, checkpoint::Fork(place.folder, entry.step, flags.to, bar.counter()));
  }
  Print(stdout, "wrote {}, a copy of {}/{}\n", copy, place.folder, entry.name);
  if (!json::Child(entry.manifest.meta, "identity").is_object())
    Print(stdout, "The parent is not recorded: an older build, without identities, wrote the checkpoint.\n");
  Print(stdout, "To continue from it, with the same settings or others: --set spec.checkpoint.from={}\n",
        flags.to);
  return kSucceeded;
}

using Action = Result<int> (*)(const CheckpointFlags&);

CLI::App* AddAction(CLI::App& app, int& exit_code, const char* verb, const char* help, const char* example,
                    const std::shared_ptr<CheckpointFlags>& flags, Action action) {
  CLI::App* command = app.add_subcommand(verb, help);
  command->add_option("PATH", flags->path, "Output folder of a run, folder of checkpoints, or one checkpoint")
      ->required();
  command->footer(std::string("Example:\n  ringmaster checkpoints ") + example);
  command->callback([flags, action, &exit_code] {
    const Result<int> done = action(*flags);
    exit_code = done.ok() ? *done : Refuse(done.error());
  });
  return command;
}

}  // namespace

void AddCheckpoints(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("checkpoints", "List, show, verify, remove and copy checkpoints");
  command->require_subcommand(1);
  command->footer(
      "Example:\n  ringmaster checkpoints ls ringmaster-out/gpt-text\n"
      "`ringmaster checkpoints COMMAND --help` describes a command.");
  const auto flags = std::make_shared<CheckpointFlags>();
  CLI::App* const ls =
      AddAction(*command, exit_code, "ls", "List checkpoints, by the sizes of their files: verify reads them",
                "ls ringmaster-out/gpt-text", flags, Ls);
  CLI::App* const show =
      AddAction(*command, exit_code, "show", "Show run, settings, parent, hashes and files of a checkpoint",
                "show ringmaster-out/gpt-text 300", flags, Show);
  CLI::App* const verify =
      AddAction(*command, exit_code, "verify", "Read and hash every file; exit code 0: whole, 1: one is not",
                "verify ringmaster-out/gpt-text", flags, Verify);
  CLI::App* const rm = AddAction(*command, exit_code, "rm",
                                 "Remove checkpoints; refused while `ringmaster run` uses the folder",
                                 "rm ringmaster-out/gpt-text 100 200", flags, Rm);
  CLI::App* const fork =
      AddAction(*command, exit_code, "fork", "Copy a checkpoint, for another run to begin with",
                "fork ringmaster-out/gpt-text 300 --to forks/lower-rate", flags, Fork);
  constexpr const char* kStep = "Number of the step (default: the newest)";
  show->add_option("STEP", flags->steps, kStep)->expected(0, 1);
  fork->add_option("STEP", flags->steps, kStep)->expected(0, 1);
  verify->add_option("STEP", flags->steps, "Numbers of the steps (default: all)");
  rm->add_option("STEP", flags->steps, "Numbers of the steps");
  for (CLI::App* const one : {ls, show, verify}) one->add_flag("--json", flags->json, "Print JSON");
  rm->add_flag("--force", flags->force, "Remove even the newest whole checkpoint of a run");
  fork->add_option("--to", flags->to, "Folder to create, outside of other checkpoints")->required();
}

}  // namespace ringmaster::cli
