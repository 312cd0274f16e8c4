// SPDX-License-Identifier: Apache-2.0

// `ringmaster sample`: prints the prompt and the model's continuation.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/weights/checkpoint_model.h"
#include "cli/weights/text_generation.h"
#include "cli/write_text.h"

namespace ringmaster::cli {
namespace {

Status Sample(const std::string& path, const std::string& prompt, const SampleOptions& options) {
  RM_ASSIGN(CheckpointModel loaded, CheckpointModel::Load(path, 1));
  const engine::ModelConfig& config = loaded.model().config();
  if (config.kind != engine::ModelKind::kGpt)
    return Error{Code::kInvalid, path + ": this is an image model; only gpt models generate text"};
  RM_ASSIGN(auto tokens, EncodePrompt(prompt, loaded.tokenizer(), config.vocabulary));
  const bool bytes = loaded.tokenizer() == "bytes";
  WriteText(stdout, prompt);
  ByteWriter writer(stdout);
  const Status status =
      Generate(loaded.model(), loaded.params(), std::move(tokens), options, [&](int32_t token) {
        if (bytes)
          writer.Put(static_cast<unsigned char>(token));
        else
          Print(stdout, " {}", token);
        std::fflush(stdout);
      });
  WriteText(stdout, "\n");
  return status;
}

}  // namespace

void AddSample(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string path;
    std::string prompt;
    SampleOptions options;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("sample", "Generate text with a trained gpt");
  command->add_option("CHECKPOINT", flags->path, "A checkpoint, or the output folder of a run")->required();
  command->add_option("--prompt", flags->prompt, "Text to continue")->required();
  command->add_option("--tokens", flags->options.tokens, "Number of tokens to generate")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}))
      ->capture_default_str();
  command
      ->add_option("--temperature", flags->options.temperature,
                   "Sampling temperature; 0: greedy, 1: unscaled")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--seed", flags->options.seed, "Random seed; equal seeds give equal text")
      ->capture_default_str();
  command->footer(
      "Example:\n  ringmaster sample ringmaster-out/gpt-text --prompt 'In the beginning' --tokens 300");
  command->callback([flags, &exit_code] {
    const Status status = Sample(flags->path, flags->prompt, flags->options);
    exit_code = status.ok() ? kSucceeded : Refuse(status.error());
  });
}

}  // namespace ringmaster::cli
