// SPDX-License-Identifier: Apache-2.0

// The backend of every attention problem and pass (choice_table.h): the kernels of this repository, or a plan
// of a library, by name and version. Valid only with the table's key, the model of the GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "worker/compute/cuda/attention_library.h"
#include "worker/compute/cuda/choice_table.h"

namespace ringmaster::cuda {

// The name of the kernels of this repository in tables.
inline constexpr std::string_view kNativeKernels = "own";

// The backend of one pass.
struct AttentionBackend {
  std::string library = std::string(kNativeKernels);  // or AttentionLibrary::Name
  std::string plan = "-";                             // AttentionLibrary::Plan::name
  bool native() const { return library == kNativeKernels; }
  bool operator==(const AttentionBackend&) const = default;
};

struct AttentionChoice {
  AttentionBackend forward;
  AttentionBackend backward;
  const AttentionBackend& Of(AttentionPass pass) const {
    return pass == AttentionPass::kForward ? forward : backward;
  }
  AttentionBackend& Of(AttentionPass pass) { return pass == AttentionPass::kForward ? forward : backward; }
  bool operator==(const AttentionChoice&) const = default;
};

class AttentionChoices : public ChoiceTable<AttentionProblem, AttentionChoice> {
 public:
  using ChoiceTable::ChoiceTable;

  std::string Text() const;
  // Errors: kInvalid when the text has another key, kCorrupt when it is not a table.
  static Result<AttentionChoices> Parse(std::string_view text, std::string_view key);

  // Returns a hash of Text.
  uint64_t Fingerprint() const;
};

}  // namespace ringmaster::cuda
