// SPDX-License-Identifier: Apache-2.0

// Who does each attention: a table that goes to a file and to other members of a job as text, one line per
// problem. Knows no device.
//
// A maker is our own kernels or a library's plan, by name and version; all of it is worth something only
// together with the key, the kind of GPU.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "worker/compute/cuda/attention_library.h"

namespace ringmaster::cuda {

inline constexpr std::string_view kNativeKernels = "own";

// Of one pass.
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

class AttentionChoices {
 public:
  // `key` is one line.
  explicit AttentionChoices(std::string key) : key_(std::move(key)) {}

  const std::string& key() const { return key_; }
  const std::map<AttentionProblem, AttentionChoice>& all() const { return choices_; }
  const AttentionChoice* Find(const AttentionProblem& problem) const;
  void Set(const AttentionProblem& problem, const AttentionChoice& choice) { choices_[problem] = choice; }

  std::string Text() const;
  // kInvalid when the text is of another key, kCorrupt when it is no such text.
  static Result<AttentionChoices> Parse(std::string_view text, std::string_view key);

  // Of all that Text says.
  uint64_t Fingerprint() const;

 private:
  std::string key_;
  std::map<AttentionProblem, AttentionChoice> choices_;
};

}  // namespace ringmaster::cuda
