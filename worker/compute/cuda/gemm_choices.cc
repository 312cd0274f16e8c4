// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/gemm_choices.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>
#include <vector>

#include "worker/compute/cuda/choices_text.h"
#include "worker/compute/cuda/epilogue.h"

namespace ringmaster::cuda {
namespace {

constexpr std::string_view kMagic = "ringmaster product choices 2";

// Letters of epilogues, in the order of Epilogue.
constexpr std::string_view kEpilogues = "-+gd";

// "m n k lda ldb ldc flags": what a shape is, in words that Read reads back.
std::string ShapeText(const GemmShape& s) {
  return fmt::format("{} {} {} {} {} {} {}{}{}{}{}{}", s.m, s.n, s.k, s.lda, s.ldb, s.ldc,
                     s.a_transposed ? 't' : 'n', s.b_transposed ? 't' : 'n', s.in == DType::kBf16 ? 'b' : 'f',
                     s.out == DType::kBf16 ? 'b' : 'f', kEpilogues[static_cast<size_t>(s.epilogue)],
                     s.accumulate ? '+' : '-');
}

bool ReadShape(const std::vector<std::string_view>& words, GemmShape& s) {
  if (!Read(words[0], s.m) || !Read(words[1], s.n) || !Read(words[2], s.k) || !Read(words[3], s.lda) ||
      !Read(words[4], s.ldb) || !Read(words[5], s.ldc) || words[6].size() != 6)
    return false;
  const std::string_view flags = words[6];
  s.a_transposed = flags[0] == 't';
  s.b_transposed = flags[1] == 't';
  s.in = flags[2] == 'b' ? DType::kBf16 : DType::kFloat;
  s.out = flags[3] == 'b' ? DType::kBf16 : DType::kFloat;
  const size_t epilogue = kEpilogues.find(flags[4]);
  if (epilogue == std::string_view::npos) return false;
  s.epilogue = static_cast<Epilogue>(epilogue);
  s.accumulate = flags[5] == '+';
  return true;
}

// Bytes of the algorithm, behind who does the epilogue.
std::string AlgorithmText(const GemmChoice& choice) {
  std::string text = choice.fused ? "fused " : "apart ";
  for (const uint8_t byte : choice.algorithm) text += fmt::format("{:02x}", byte);
  return text;
}

bool ReadAlgorithm(std::string_view text, GemmAlgorithm& algorithm) {
  if (text.size() != 2 * algorithm.size()) return false;
  for (size_t i = 0; i < algorithm.size(); ++i) {
    const char* at = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(at, at + 2, algorithm[i], 16);
    if (error != std::errc() || end != at + 2) return false;
  }
  return true;
}

}  // namespace

const GemmChoice* GemmChoices::Find(const GemmShape& shape) const {
  const auto it = choices_.find(shape);
  return it == choices_.end() ? nullptr : &it->second;
}

std::string GemmChoices::Text() const {
  std::string text = fmt::format("{}\n{}\n", kMagic, key_);
  for (const auto& [shape, choice] : choices_)
    text += fmt::format("{} {} {:.6f}\n", ShapeText(shape), AlgorithmText(choice), choice.milliseconds);
  return text;
}

Result<GemmChoices> GemmChoices::Parse(std::string_view text, std::string_view key) {
  if (NextLine(text) != kMagic)
    return Error{Code::kCorrupt, fmt::format("product choices begin with \"{}\"; this does not", kMagic)};
  if (const std::string_view theirs = NextLine(text); theirs != key)
    return Error{Code::kInvalid,
                 fmt::format("product algorithms were chosen for {}, this is {}: members of one job need the "
                             "same GPU and the same cuBLASLt",
                             theirs, key)};
  GemmChoices choices{std::string(key)};
  while (!text.empty()) {
    const std::string_view line = NextLine(text);
    const auto words = Words(line);
    GemmShape shape;
    GemmChoice choice;
    // Times are for people and benchmarks: digits of a float, which from_chars of this compiler reads too.
    if (words.size() != 10 || !ReadShape(words, shape) || (words[7] != "fused" && words[7] != "apart") ||
        !ReadAlgorithm(words[8], choice.algorithm) || !Read(words[9], choice.milliseconds))
      return Error{Code::kCorrupt, fmt::format("no line of product choices: \"{}\"", line)};
    choice.fused = words[7] == "fused";
    if (!choice.fused && !HasKernel(shape.epilogue))
      return Error{Code::kCorrupt, fmt::format("no kernel can follow this product: \"{}\"", line)};
    choices.Set(shape, choice);
  }
  return choices;
}

uint64_t GemmChoices::Fingerprint() const {
  std::string text = key_;
  for (const auto& [shape, choice] : choices_) text += "\n" + ShapeText(shape) + " " + AlgorithmText(choice);
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace ringmaster::cuda
