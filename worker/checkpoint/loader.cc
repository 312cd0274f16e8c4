// SPDX-License-Identifier: Apache-2.0

#include <filesystem>
#include <new>

#include "base/check.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/names.h"
#include "worker/checkpoint/verify.h"

namespace ringmaster::checkpoint {
namespace {

Result<Loaded> LoadFolder(const std::string& folder, const std::atomic<bool>* cancel, WorkCounter* counter) {
  RM_ASSIGN(Manifest manifest, ReadManifest(folder));
  RM_TRY(CheckSizes(folder, manifest));
  Loaded loaded;
  loaded.step = manifest.step;
  loaded.path = folder;
  loaded.model = std::move(manifest.model);
  loaded.meta = std::move(manifest.meta);
  int64_t total = 0;
  for (const ArrayEntry& array : manifest.arrays) total += static_cast<int64_t>(array.bytes);
  if (counter != nullptr) counter->Begin(total);
  for (ArrayEntry& array : manifest.arrays) {
    Loaded::Part part{std::move(array.name), std::move(array.type), {}};
    part.bytes.resize(static_cast<size_t>(array.bytes));
    size_t at = 0;
    for (const Chunk& chunk : array.chunks) {
      if (cancel != nullptr && *cancel) return Error{Code::kCancelled, folder + ": loading was cancelled"};
      const auto bytes = static_cast<size_t>(chunk.bytes);
      RM_TRY(ReadChunk(folder, chunk, std::span(part.bytes).subspan(at, bytes)));
      at += bytes;
      if (counter != nullptr) counter->Add(chunk.bytes);
    }
    loaded.arrays.push_back(std::move(part));
  }
  return loaded;
}

Result<Loaded> LoadFolderWithinMemory(const std::string& folder, const std::atomic<bool>* cancel,
                                      WorkCounter* counter) {
  try {
    return LoadFolder(folder, cancel, counter);
  } catch (const std::bad_alloc&) {
    return Error{Code::kExhausted, folder + ": does not fit into memory; give the worker more"};
  }
}

}  // namespace

std::span<const float> Loaded::Part::Floats() const {
  CHECK(bytes.size() % sizeof(float) == 0);
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

const Loaded::Part* Loaded::Find(const std::string& name) const {
  for (const Part& part : arrays) {
    if (part.name == name) return &part;
  }
  return nullptr;
}

Result<Loaded> LoadNewest(const std::string& folder, const std::string& expected_model,
                          const std::atomic<bool>* cancel, WorkCounter* counter) {
  RM_ASSIGN(const std::vector<int64_t> steps, StepsIn(folder));
  std::vector<std::string> skipped;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    auto loaded = LoadFolderWithinMemory(folder + "/" + StepName(*step), cancel, counter);
    if (!loaded.ok()) {
      // Fall back to an older checkpoint only after damage (or a failed read). If this process may not read
      // it, has too little memory, or does not know its version, a silent fallback would lose steps.
      const Code code = loaded.error().code;
      if (code != Code::kCorrupt && code != Code::kUnavailable) return loaded;
      skipped.push_back(loaded.error().message);
      continue;
    }
    if (!expected_model.empty() && loaded->model != expected_model) {
      return Error{
          Code::kInvalid,
          fmt::format("{}: is a checkpoint of another model or data ({}, this job is {}); give the job "
                      "another folder (--out, spec.checkpoint.path), or start over with --fresh",
                      loaded->path, loaded->model, expected_model)};
    }
    loaded->skipped = std::move(skipped);
    return loaded;
  }
  if (skipped.empty()) return Error{Code::kNotFound, folder + ": has no checkpoint"};
  std::string all;
  for (const std::string& why : skipped) all += "\n  " + why;
  return Error{Code::kCorrupt,
               folder +
                   ": every checkpoint is damaged; restore one from a copy, or start over with "
                   "--fresh:" +
                   all};
}

Newest FindNewest(const std::string& folder, const std::string& expected_model) {
  const auto steps = StepsIn(folder);
  if (!steps.ok()) return {-1, steps.error().message};
  Newest newest;
  std::string skipped;
  for (auto step = steps->rbegin(); step != steps->rend() && newest.step < 0; ++step) {
    const std::string path = folder + "/" + StepName(*step);
    const auto manifest = ReadManifest(path);
    const Status whole = manifest.ok() ? CheckSizes(path, *manifest) : Status(manifest.error());
    if (!whole.ok()) {
      skipped += "; skipped " + whole.error().message;
    } else if (manifest->model != expected_model) {
      return {-1, path + " is a checkpoint of another model or data"};
    } else {
      newest.step = *step;
    }
  }
  newest.text = newest.step < 0 ? folder + " has no checkpoint"
                                : fmt::format("the newest in {} is of step {}", folder, newest.step);
  newest.text += skipped;
  return newest;
}

Result<Loaded> Load(const std::string& path, WorkCounter* counter) {
  std::string folder = path;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  std::error_code error;
  const bool single = ParseStepName(std::filesystem::path(folder).filename().string()).has_value() ||
                      std::filesystem::exists(folder + "/" + std::string(kManifestName), error);
  if (!single) return LoadNewest(folder, "", nullptr, counter);
  if (!std::filesystem::is_directory(folder, error)) {
    return Error{Code::kNotFound, folder + ": is not a folder; give a checkpoint folder (.../step-...)"};
  }
  return LoadFolderWithinMemory(folder, nullptr, counter);
}

std::vector<int64_t> List(const std::string& folder) {
  const auto steps = StepsIn(folder);
  std::vector<int64_t> good;
  if (!steps.ok()) return good;
  for (const int64_t step : *steps) {
    if (ReadManifest(folder + "/" + StepName(step)).ok()) good.push_back(step);
  }
  return good;
}

}  // namespace ringmaster::checkpoint
