// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/plan_text.h"

#include <fmt/format.h>

#include "worker/compute/cuda/text_lines.h"

namespace ringmaster::cuda {
namespace {

constexpr std::string_view kPlanMagic = "ringmaster GPU plan 1";

// A part is a line with its name and its size in bytes, followed by its text.
bool ReadPart(std::string_view& text, std::string_view name, std::string& part) {
  const auto words = SplitWords(NextLine(text));
  size_t size = 0;
  if (words.size() != 2 || words[0] != name || !ParseNumber(words[1], size) || size > text.size())
    return false;
  part = text.substr(0, size);
  text.remove_prefix(size);
  return true;
}

}  // namespace

std::string PlanText::Text() const {
  return fmt::format("{}\nproducts {}\n{}attention {}\n{}", kPlanMagic, gemm.size(), gemm, attention.size(),
                     attention);
}

Result<PlanText> PlanText::Parse(std::string_view text) {
  if (NextLine(text) != kPlanMagic)
    return Error{Code::kCorrupt,
                 fmt::format("the plan of a GPU must begin with \"{}\"; this text does not", kPlanMagic)};
  PlanText plan;
  if (!ReadPart(text, "products", plan.gemm) || !ReadPart(text, "attention", plan.attention) || !text.empty())
    return Error{Code::kCorrupt, "the plan of a GPU is truncated or damaged"};
  return plan;
}

}  // namespace ringmaster::cuda
