// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/gemm_choices.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>
#include <vector>

#include "worker/compute/cuda/epilogue.h"
#include "worker/compute/cuda/text_lines.h"

namespace ringmaster::cuda {
namespace {

constexpr ChoiceFormat kGemmFormat = {.magic = "ringmaster product choices 2",
                                      .name = "GEMM choices",
                                      .requirement = "the same GPU and the same cuBLASLt"};

// The letter of each epilogue, in the order of Epilogue.
constexpr std::string_view kEpilogues = "-+gd";

// Returns "m n k lda ldb ldc flags", which ReadShape parses.
std::string ShapeText(const GemmShape& s) {
  return fmt::format("{} {} {} {} {} {} {}{}{}{}{}{}", s.m, s.n, s.k, s.lda, s.ldb, s.ldc,
                     s.a_transposed ? 't' : 'n', s.b_transposed ? 't' : 'n', s.in == DType::kBf16 ? 'b' : 'f',
                     s.out == DType::kBf16 ? 'b' : 'f', kEpilogues[static_cast<size_t>(s.epilogue)],
                     s.accumulate ? '+' : '-');
}

bool ReadShape(const std::vector<std::string_view>& words, GemmShape& s) {
  if (!ParseNumber(words[0], s.m) || !ParseNumber(words[1], s.n) || !ParseNumber(words[2], s.k) ||
      !ParseNumber(words[3], s.lda) || !ParseNumber(words[4], s.ldb) || !ParseNumber(words[5], s.ldc) ||
      words[6].size() != 6)
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

// Returns who runs the epilogue ("fused": the library; "apart": a separate kernel), and the algorithm in hex.
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

std::string GemmChoices::Text() const {
  std::string text = ChoiceHeader(kGemmFormat, key());
  for (const auto& [shape, choice] : all())
    text += fmt::format("{} {} {:.6f}\n", ShapeText(shape), AlgorithmText(choice), choice.milliseconds);
  return text;
}

Result<GemmChoices> GemmChoices::Parse(std::string_view text, std::string_view key) {
  GemmChoices choices{std::string(key)};
  RM_TRY(ParseChoices(text, kGemmFormat, key, [&](std::string_view line, bool) -> Status {
    const auto words = SplitWords(line);
    GemmShape shape;
    GemmChoice choice;
    if (words.size() != 10 || !ReadShape(words, shape) || (words[7] != "fused" && words[7] != "apart") ||
        !ReadAlgorithm(words[8], choice.algorithm) || !ParseNumber(words[9], choice.milliseconds))
      return Error{Code::kCorrupt, fmt::format("not a line of GEMM choices: \"{}\"", line)};
    choice.fused = words[7] == "fused";
    if (!choice.fused && !HasKernel(shape.epilogue))
      return Error{Code::kCorrupt, fmt::format("no kernel for the epilogue of this GEMM: \"{}\"", line)};
    choices.Set(shape, choice);
    return Ok();
  }));
  return choices;
}

uint64_t GemmChoices::Fingerprint() const {
  std::string text = key();
  for (const auto& [shape, choice] : all()) text += "\n" + ShapeText(shape) + " " + AlgorithmText(choice);
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace ringmaster::cuda
