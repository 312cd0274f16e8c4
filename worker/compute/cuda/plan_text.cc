// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/plan_text.h"

#include <fmt/format.h>

#include "worker/compute/cuda/choices_text.h"

namespace ringmaster::cuda {
namespace {

constexpr std::string_view kPlanMagic = "ringmaster GPU plan 1";

// A part is its name and its size in bytes on a line, and then itself.
bool ReadPart(std::string_view& text, std::string_view name, std::string& part) {
  const auto words = Words(NextLine(text));
  size_t size = 0;
  if (words.size() != 2 || words[0] != name || !Read(words[1], size) || size > text.size()) return false;
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
                 fmt::format("the plan of a GPU begins with \"{}\"; this does not", kPlanMagic)};
  PlanText plan;
  if (!ReadPart(text, "products", plan.gemm) || !ReadPart(text, "attention", plan.attention) || !text.empty())
    return Error{Code::kCorrupt, "the plan of a GPU is cut off or damaged"};
  return plan;
}

}  // namespace ringmaster::cuda
