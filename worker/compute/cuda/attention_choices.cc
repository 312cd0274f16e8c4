// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/attention_choices.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <vector>

#include "worker/compute/cuda/text_lines.h"

namespace ringmaster::cuda {
namespace {

constexpr ChoiceFormat kAttentionFormat = {
    .magic = "ringmaster attention choices 1", .name = "attention choices", .requirement = "the same GPU"};

// Returns "samples heads context head_size type" and, for each pass, "library plan".
std::string LineOf(const AttentionProblem& problem, const AttentionChoice& choice) {
  return fmt::format("{} {} {} {} {} {} {} {} {}\n", problem.samples, problem.heads, problem.context,
                     problem.head_size, problem.type == DType::kBf16 ? 'b' : 'f', choice.forward.library,
                     choice.forward.plan, choice.backward.library, choice.backward.plan);
}

bool ReadLine(const std::vector<std::string_view>& words, AttentionProblem& problem,
              AttentionChoice& choice) {
  if (words.size() != 9 || !ParseNumber(words[0], problem.samples) || !ParseNumber(words[1], problem.heads) ||
      !ParseNumber(words[2], problem.context) || !ParseNumber(words[3], problem.head_size) ||
      (words[4] != "b" && words[4] != "f"))
    return false;
  problem.type = words[4] == "b" ? DType::kBf16 : DType::kFloat;
  choice.forward = {.library = std::string(words[5]), .plan = std::string(words[6])};
  choice.backward = {.library = std::string(words[7]), .plan = std::string(words[8])};
  return true;
}

}  // namespace

std::string AttentionChoices::Text() const {
  std::string text = ChoiceHeader(kAttentionFormat, key());
  for (const auto& [problem, choice] : all()) text += LineOf(problem, choice);
  return text;
}

Result<AttentionChoices> AttentionChoices::Parse(std::string_view text, std::string_view key) {
  AttentionChoices choices{std::string(key)};
  RM_TRY(ParseChoices(text, kAttentionFormat, key, [&](std::string_view line, bool complete) -> Status {
    AttentionProblem problem;
    AttentionChoice choice;
    if (!complete || !ReadLine(SplitWords(line), problem, choice))
      return Error{Code::kCorrupt, fmt::format("not a line of attention choices: \"{}\"", line)};
    choices.Set(problem, choice);
    return Ok();
  }));
  return choices;
}

uint64_t AttentionChoices::Fingerprint() const {
  const std::string text = Text();
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace ringmaster::cuda
