// SPDX-License-Identifier: Apache-2.0

// The text of Device::Plan on a GPU: the choices for GEMM and for attention. Value type.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace ringmaster::cuda {

struct PlanText {
  std::string gemm;       // Gemm::Choices
  std::string attention;  // Attention::Choices

  std::string Text() const;
  // Errors: kCorrupt when `text` is not a plan.
  static Result<PlanText> Parse(std::string_view text);
};

}  // namespace ringmaster::cuda
