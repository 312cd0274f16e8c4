// SPDX-License-Identifier: Apache-2.0

// What Device::Plan says of a GPU: the choices for products and for attention, as one text.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace ringmaster::cuda {

struct PlanText {
  std::string gemm;       // Products::Choices
  std::string attention;  // Attention::Choices

  std::string Text() const;
  // kCorrupt when it is no such text.
  static Result<PlanText> Parse(std::string_view text);
};

}  // namespace ringmaster::cuda
