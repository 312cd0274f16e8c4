// `ringmaster export`: weights for other programs, in their names.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/checkpoint_model.h"
#include "cli/command.h"
#include "cli/gpt2_names.h"
#include "cli/safetensors.h"

namespace ringmaster::cli {
namespace {

Status Export(const std::string& path, const std::string& target) {
  if (target.size() < 13 || target.substr(target.size() - 12) != ".safetensors")
    return Error{Code::kInvalid, "--to " + target + ": the file name must end in .safetensors"};
  RM_ASSIGN(CheckpointModel loaded, CheckpointModel::Load(path, 1));
  RM_ASSIGN(const std::vector<Tensor> tensors, ExportTensors(loaded.model().layout(), loaded.params()));
  RM_TRY(WriteSafetensors(target, tensors));
  std::printf("wrote %zu tensors, %lld parameters of step %lld, to %s\n", tensors.size(),
              static_cast<long long>(loaded.model().layout().trainable),
              static_cast<long long>(loaded.checkpoint().step), target.c_str());
  if (loaded.model().config().kind == engine::ModelKind::kGpt)
    std::printf("For transformers: name it model.safetensors and put this beside it as config.json:\n%s\n",
                Gpt2Config(loaded.model().config()).dump(2).c_str());
  return Ok();
}

}  // namespace

void AddExport(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string path;
    std::string target;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("export", "Write the weights as safetensors (gpt: Hugging Face GPT-2 names)");
  command->add_option("CHECKPOINT", flags->path, "A checkpoint, or the output folder of a run")->required();
  command->add_option("--to", flags->target, "FILE.safetensors to write")->required();
  command->footer("Example:\n  ringmaster export ringmaster-out/gpt-text --to model.safetensors");
  command->callback([flags, &exit_code] {
    const Status status = Export(flags->path, flags->target);
    exit_code = status.ok() ? kSucceeded : Refuse(status.error());
  });
}

}  // namespace ringmaster::cli
