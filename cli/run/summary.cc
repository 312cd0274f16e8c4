// SPDX-License-Identifier: Apache-2.0

#include "cli/run/summary.h"

#include <fmt/format.h>

#include <cmath>

#include "base/file.h"

namespace ringmaster::cli {
namespace {

Json NumberOrNull(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json();
}

std::string Line(const char* name, const std::string& value) {
  return fmt::format("  {:<14}{}\n", name, value);
}

}  // namespace

Json SummaryJson(const Summary& s) {
  Json validation = Json::object();
  validation["loss"] = NumberOrNull(s.validation_loss);
  if (s.language_model)
    validation["perplexity"] =
        NumberOrNull(s.validation_loss ? std::optional(std::exp(*s.validation_loss)) : std::nullopt);
  else
    validation["accuracy"] = NumberOrNull(s.validation_accuracy);
  return Json{{"phase", s.phase},
              {"step", s.step},
              {"totalSteps", s.total_steps},
              {"loss", NumberOrNull(s.loss)},
              {"validation", validation},
              {"weightsHash", s.weights_hash},
              {"optimizerHash", s.optimizer_hash},
              {"samplesPerSecond", s.samples_per_second},
              {"goodput", s.goodput},
              {"generations", s.generations},
              {"workerFailures", s.worker_failures},
              {"lostSteps", s.lost_steps},
              {"wallSeconds", s.wall_seconds},
              {"message", s.message}};
}

std::string SummaryText(const Summary& s, const std::string& folder) {
  const std::string steps = s.total_steps > 0 ? fmt::format(": step {} of {}", s.step, s.total_steps)
                            : s.step > 0      ? fmt::format(": step {}", s.step)
                                              : "";
  std::string text = fmt::format("{}{} in {:.1f} s\n", s.phase, steps, s.wall_seconds);
  if (!s.message.empty()) text += Line("why", s.message);
  if (s.loss) text += Line("loss", fmt::format("{:.4f}", *s.loss));
  if (s.validation_loss) {
    std::string value = fmt::format("loss {:.4f}", *s.validation_loss);
    if (s.language_model)
      value += fmt::format(", perplexity {:.3f}", std::exp(*s.validation_loss));
    else if (s.validation_accuracy)
      value += fmt::format(", accuracy {:.2f} %", 100 * *s.validation_accuracy);
    text += Line("validation", value);
  }
  std::string speed = fmt::format("{:.1f} samples/s", s.samples_per_second);
  if (s.tokens_per_sample > 0)
    speed +=
        fmt::format(", {:.0f} tokens/s", s.samples_per_second * static_cast<double>(s.tokens_per_sample));
  if (s.samples_per_second > 0) {
    text += Line("speed", speed);
    text += Line("goodput", fmt::format("{:.1f} %", 100 * s.goodput));
  }
  text +=
      Line("workers", fmt::format("{} failure{}, {} generation{}, {} step{} lost", s.worker_failures,
                                  s.worker_failures == 1 ? "" : "s", s.generations,
                                  s.generations == 1 ? "" : "s", s.lost_steps, s.lost_steps == 1 ? "" : "s"));
  if (!s.weights_hash.empty()) text += Line("weights hash", s.weights_hash);
  if (s.phase == "Failed") text += Line("logs", folder + "/logs/");
  return text + Line("output", folder);
}

Status WriteSummary(const std::string& path, const Summary& summary) {
  return WriteFileAtomic(path, SummaryJson(summary).dump(2) + "\n");
}

}  // namespace ringmaster::cli
