// SPDX-License-Identifier: Apache-2.0

// `ringmaster plot`: draws recorded runs into a file, or into the terminal.
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/command.h"
#include "cli/history/recorded_run.h"
#include "cli/plot/chart.h"
#include "cli/plot/png_library.h"
#include "cli/plot/text_chart.h"
#include "cli/write_text.h"

namespace ringmaster::cli {
namespace {

struct PlotFlags {
  std::vector<std::string> folders;
  std::string to;
  std::string show = "all";
};

Result<ChartPart> ParsePart(const std::string& text) {
  if (text == "all") return ChartPart::kAll;
  if (text == "loss") return ChartPart::kLoss;
  if (text == "gang") return ChartPart::kGang;
  return Error{Code::kInvalid, "--show " + text + ": expected all, loss or gang"};
}

Status CheckTarget(const std::string& to) {
  const std::string extension = std::filesystem::path(to).extension().string();
  if (extension == ".svg" || extension == ".png") return Ok();
  return Error{Code::kInvalid, "--to " + to + ": expected a name that ends with .svg or .png"};
}

// Does not use WriteFileAtomic: the target may be /dev/stdout or a pipe.
Status WriteTextFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) return ErrnoError("write " + path, errno);
  return Ok();
}

Status Plot(const PlotFlags& flags) {
  RM_ASSIGN(const ChartPart part, ParsePart(flags.show));
  if (!flags.to.empty()) RM_TRY(CheckTarget(flags.to));
  std::vector<RecordedRun> runs;
  for (const std::string& folder : flags.folders) {
    RM_ASSIGN(RecordedRun run, LoadRun(folder));
    runs.push_back(std::move(run));
  }
  if (flags.to.empty()) {
    WriteText(stdout, TextChart(runs, part, StdoutTraits()));
    return Ok();
  }
  const Picture picture = DrawChart(runs, part);
  if (flags.to.ends_with(".png")) return WritePng(picture, flags.to);
  return WriteTextFile(flags.to, ToSvg(picture));
}

}  // namespace

void AddPlot(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PlotFlags>();
  CLI::App* command =
      app.add_subcommand("plot", "Draw the losses and the workers of runs of `ringmaster run`");
  command->add_option("DIR", flags->folders, "Output folders; their curves share one chart")->required();
  command->add_option("--to", flags->to, "Write FILE.svg or FILE.png instead of drawing in the terminal");
  command->add_option("--show", flags->show, "all, loss or gang")->capture_default_str();
  command->footer(
      "Reads metrics.jsonl and events.jsonl; the run may still be running.\n"
      "Exit codes: 0 drawn, 2 bad input.\n"
      "Examples:\n"
      "  ringmaster plot ringmaster-out/gpt-text\n"
      "  ringmaster plot runs/1 runs/2 --to loss.svg --show loss");
  command->callback([flags, &exit_code] {
    const Status plotted = Plot(*flags);
    exit_code = plotted.ok() ? kSucceeded : Refuse(plotted.error());
  });
}

}  // namespace ringmaster::cli
