// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/attention_choices.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <vector>

#include "worker/compute/cuda/choices_text.h"

namespace ringmaster::cuda {
namespace {

constexpr std::string_view kAttentionMagic = "ringmaster attention choices 1";

// "samples heads context head_size type" and, for each pass, "library plan".
std::string LineOf(const AttentionProblem& problem, const AttentionChoice& choice) {
  return fmt::format("{} {} {} {} {} {} {} {} {}\n", problem.samples, problem.heads, problem.context,
                     problem.head_size, problem.type == DType::kBf16 ? 'b' : 'f', choice.forward.library,
                     choice.forward.plan, choice.backward.library, choice.backward.plan);
}

bool ReadLine(const std::vector<std::string_view>& words, AttentionProblem& problem,
              AttentionChoice& choice) {
  if (words.size() != 9 || !Read(words[0], problem.samples) || !Read(words[1], problem.heads) ||
      !Read(words[2], problem.context) || !Read(words[3], problem.head_size) ||
      (words[4] != "b" && words[4] != "f"))
    return false;
  problem.type = words[4] == "b" ? DType::kBf16 : DType::kFloat;
  choice.forward = {.library = std::string(words[5]), .plan = std::string(words[6])};
  choice.backward = {.library = std::string(words[7]), .plan = std::string(words[8])};
  return true;
}

}  // namespace

const AttentionChoice* AttentionChoices::Find(const AttentionProblem& problem) const {
  const auto it = choices_.find(problem);
  return it == choices_.end() ? nullptr : &it->second;
}

std::string AttentionChoices::Text() const {
  std::string text = fmt::format("{}\n{}\n", kAttentionMagic, key_);
  for (const auto& [problem, choice] : choices_) text += LineOf(problem, choice);
  return text;
}

Result<AttentionChoices> AttentionChoices::Parse(std::string_view text, std::string_view key) {
  if (NextLine(text) != kAttentionMagic)
    return Error{Code::kCorrupt,
                 fmt::format("attention choices begin with \"{}\"; this does not", kAttentionMagic)};
  if (const std::string_view theirs = NextLine(text); theirs != key)
    return Error{Code::kInvalid, fmt::format("attention was chosen for {}, this is {}: members of one job "
                                             "need the same GPU",
                                             theirs, key)};
  AttentionChoices choices{std::string(key)};
  while (!text.empty()) {
    const bool whole = text.find('\n') != std::string_view::npos;
    const std::string_view line = NextLine(text);
    AttentionProblem problem;
    AttentionChoice choice;
    if (!whole || !ReadLine(Words(line), problem, choice))
      return Error{Code::kCorrupt, fmt::format("no line of attention choices: \"{}\"", line)};
    choices.Set(problem, choice);
  }
  return choices;
}

uint64_t AttentionChoices::Fingerprint() const {
  const std::string text = Text();
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace ringmaster::cuda
