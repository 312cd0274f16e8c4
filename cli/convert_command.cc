// SPDX-License-Identifier: Apache-2.0

// `ringmaster convert`: prints the TrainingJobs that replace the jobs of other operators.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "api/yaml_text.h"
#include "cli/command.h"
#include "cli/convert/convert.h"
#include "cli/manifest.h"
#include "cli/write_text.h"

namespace ringmaster::cli {
namespace {

void PrintRemarks(const std::string& file, const convert::Converted& converted) {
  for (const convert::Remark& remark : converted.remarks) {
    const std::string place =
        remark.mark.line > 0 ? fmt::format("{}:{}:{}", file, remark.mark.line, remark.mark.column) : file;
    Print(stderr, "{}: {}: {}{}{}\n", place, remark.refused ? "error" : "note", remark.path,
          remark.path.empty() ? "" : ": ", remark.message);
  }
}

int Convert(const std::string& file) {
  const Result<std::string> text = ReadManifest(file);
  if (!text.ok()) return Refuse(text.error());
  int jobs = 0;
  bool refused = false;
  for (const convert::Converted& converted : convert::ConvertManifests(*text)) {
    PrintRemarks(file, converted);
    if (!converted.job.is_null()) {
      Print(stdout, "{}{}", jobs++ == 0 ? "" : "---\n", api::YamlText(converted.job));
      continue;
    }
    for (const convert::Remark& remark : converted.remarks) refused = refused || remark.refused;
  }
  if (jobs == 0 && !refused)
    return Refuse(
        {Code::kInvalid, file + ": there is no PyTorchJob, TFJob, JAXJob, MPIJob or TrainJob to convert"});
  return refused ? kBadInput : kSucceeded;
}

}  // namespace

void AddConvert(CLI::App& app, int& exit_code) {
  auto file = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("convert",
                                         "Print the TrainingJobs for a PyTorchJob, TFJob, JAXJob, MPIJob or "
                                         "TrainJob; exit code 2: one was refused");
  command
      ->add_option("FILE", *file,
                   "Manifests of one or more jobs (YAML or JSON), - for standard input. A TrainJob uses the "
                   "runtimes in "
                   "the same input")
      ->required();
  command->footer(
      "What has no counterpart is reported on standard error, with its line.\n"
      "Example:\n  kubectl get pytorchjob mnist -o yaml | ringmaster convert - > job.yaml");
  command->callback([file, &exit_code] { exit_code = Convert(*file); });
}

}  // namespace ringmaster::cli
