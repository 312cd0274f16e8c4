// SPDX-License-Identifier: Apache-2.0

// `ringmaster compare`: prints where two recorded runs begin to differ.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/compare/compare_runs.h"
#include "cli/history/recorded_run.h"
#include "cli/write_text.h"

namespace ringmaster::cli {
namespace {

struct CompareFlags {
  std::string first;
  std::string second;
};

int Report(const Comparison& found, const std::string& what) {
  if (!found.difference.empty()) {
    Print(stdout, "The runs differ first in {}\n", found.difference);
    return kFailed;
  }
  if (!found.unpaired.empty()) {
    Print(stdout, "The runs are equal in what both have: {}.\n{}.\n", what, found.unpaired);
    return kFailed;
  }
  Print(stdout, "The runs are equal: {}.\n", what);
  return kSucceeded;
}

Result<int> CompareByMetrics(const CompareFlags& flags) {
  RM_ASSIGN(RecordedRun first, LoadRun(flags.first));
  RM_ASSIGN(RecordedRun second, LoadRun(flags.second));
  first.name = flags.first;  // x/out and y/out are two runs
  second.name = flags.second;
  const Comparison found = CompareMetrics(first, second);
  if (found.difference.empty() && found.last_step < 0)
    return Error{Code::kInvalid, "the runs have no step in common"};
  const int code =
      Report(found, fmt::format("losses, gradient norms and learning rates up to step {}", found.last_step));
  Print(stdout,
        "Only metrics.jsonl was compared. `ringmaster run --digests` records what names the micro-batch and "
        "the tensor.\n");
  return code;
}

Result<int> Compare(const CompareFlags& flags) {
  const Result<RunDigests> first = LoadDigests(flags.first);
  const Result<RunDigests> second = LoadDigests(flags.second);
  for (const Result<RunDigests>* run : {&first, &second})
    if (!run->ok() && run->error().code != Code::kNotFound) return run->error();
  if (!first.ok() && !second.ok()) return CompareByMetrics(flags);
  if (!first.ok() || !second.ok()) {
    const Result<int> by_metrics = CompareByMetrics(flags);
    // Without the metrics of both, what one of them lacks is the digests.
    return by_metrics.ok() ? by_metrics : (first.ok() ? second : first).error();
  }
  const Comparison found = CompareDigests(*first, *second);
  if (found.difference.empty() && found.last_step < 0)
    return Error{Code::kInvalid, "the runs have no step in common"};
  return Report(found, fmt::format("{} micro-batches and {} states, up to step {}", found.micro_batches,
                                   found.states, found.last_step));
}

}  // namespace

void AddCompare(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App* command =
      app.add_subcommand("compare", "Find the first step, micro-batch and tensor in which two runs differ");
  command
      ->add_option(
          "RUN1", flags->first,
          "Output folder of `ringmaster run`, or a folder or file of digests of rm.init(digests=...)")
      ->required();
  command->add_option("RUN2", flags->second, "The same of another run, or of the same one")->required();
  command->footer(
      "Reads the digests that both runs recorded, otherwise metrics.jsonl. All workers of a run are "
      "compared, "
      "too.\n"
      "Exit codes: 0 equal, 1 different, or equal and one run has more steps or micro-batches, 2 bad input.\n"
      "Examples:\n"
      "  ringmaster run job.yaml --digests --out out/a\n"
      "  ringmaster run job.yaml --digests --out out/b --workers 3\n"
      "  ringmaster compare out/a out/b");
  command->callback([flags, &exit_code] {
    const Result<int> compared = Compare(*flags);
    exit_code = compared.ok() ? *compared : Refuse(compared.error());
  });
}

}  // namespace ringmaster::cli
