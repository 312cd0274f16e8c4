// SPDX-License-Identifier: Apache-2.0

#include "worker/library/step_digests.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/open_file.h"

namespace ringmaster::library {
namespace {

// JSON has no number for those that are not finite, and `ringmaster compare` must distinguish them.
Json NumberOf(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

}  // namespace

Result<StepDigests> StepDigests::Create(const std::string& folder, const std::string& member,
                                        const std::string& pod, const std::string& job,
                                        const std::vector<Tensor>& tensors) {
  RM_TRY(MakeFolder(folder));
  // A program without an agent has the same name in each of its runs.
  std::string name = fmt::format("{}.{}", member, ::getpid());
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-'; }, '.');
  for (int number = 0;; ++number) {
    const std::string path = fmt::format("{}/{}.{}.jsonl", folder, name, number);
    Fd file = OpenFile(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, 0666);
    if (!file.valid() && errno == EEXIST) continue;
    if (!file.valid()) return ErrnoError("create " + path, errno);
    StepDigests digests(std::move(file), path, tensors.size());
    Json names = Json::array();
    for (const Tensor& tensor : tensors) names.push_back(tensor.name);
    // The time, because a pid returns, also on another machine that shares the folder.
    const std::string run =
        job.empty()
            ? fmt::format(
                  "a program of pid {}, started at {} ns", ::getpid(),
                  std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count())
            : job;
    RM_TRY(digests.Write(
        {{"digests", 1}, {"run", run}, {"worker", pod.empty() ? member : pod}, {"tensors", names}}));
    return digests;
  }
}

void StepDigests::BeginMicroBatch(int64_t step, uint64_t generation, int v) {
  micro_batch_ = {{"step", step}, {"generation", generation}, {"microBatch", v}};
  micro_batch_["gradients"] = Json::array();
  for (size_t i = 0; i < tensors_; ++i) micro_batch_["gradients"].push_back(nullptr);
}

void StepDigests::Add(int tensor, std::span<const float> values) {
  micro_batch_["gradients"][static_cast<size_t>(tensor)] = HashHex(Hash64(std::as_bytes(values)));
}

Status StepDigests::EndMicroBatch(double loss, std::optional<double> weight) {
  micro_batch_["loss"] = NumberOf(loss);
  if (weight) micro_batch_["weight"] = NumberOf(*weight);
  return Write(std::exchange(micro_batch_, Json()));
}

Status StepDigests::Committed(int64_t step, uint64_t generation, double loss, double gradient_norm,
                              double learning_rate) {
  return Write({{"step", step},
                {"generation", generation},
                {"loss", NumberOf(loss)},
                {"gradientNorm", NumberOf(gradient_norm)},
                {"learningRate", NumberOf(learning_rate)}});
}

Status StepDigests::State(int64_t step, uint64_t generation, const std::vector<StateArray>& arrays) {
  Json state = Json::array();
  for (const StateArray& array : arrays)
    state.push_back(Json::array({array.name, HashHex(Hash64(array.bytes))}));
  RM_TRY(Write({{"step", step}, {"generation", generation}, {"state", std::move(state)}}));
  state_step_ = step;
  return Ok();
}

Status StepDigests::Write(const Json& line) {
  const std::string text = DumpJson(line) + "\n";
  return WriteAll(file_, path_, std::as_bytes(std::span(text)));
}

}  // namespace ringmaster::library
