// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <filesystem>
#include <map>
#include <new>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "base/time.h"
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
  loaded.state = std::move(manifest.state);
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

// Repeats reads that fail for a reason that may pass. A file server that restarts or fails over, and a handle
// that became stale because another client replaced the file, take seconds.
class Patience {
 public:
  explicit Patience(const std::atomic<bool>* cancel) : cancel_(cancel) {}

  // Returns whether to try again after this error, after a pause.
  bool TryAgain(const Error& error) {
    if (error.code != Code::kUnavailable || Now() >= deadline_) return false;
    if (cancel_ != nullptr && *cancel_) return false;
    if (pause_ == kFirstPause) log::Warn("checkpoint: {}; trying again for {} s", error.message, kSeconds);
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(pause_ * 2, kLongestPause);
    return true;
  }

 private:
  static constexpr int kSeconds = 20;
  static constexpr Duration kFirstPause = milliseconds(10);
  static constexpr Duration kLongestPause = seconds(1);
  const std::atomic<bool>* const cancel_;
  const Time deadline_ = Now() + seconds(kSeconds);
  Duration pause_ = kFirstPause;
};

constexpr size_t kMostSentences = 20;

std::string Joined(const std::vector<std::string>& sentences) {
  std::string text;
  for (size_t i = 0; i < std::min(sentences.size(), kMostSentences); ++i)
    text += (text.empty() ? "" : "; ") + sentences[i];
  if (sentences.size() > kMostSentences)
    text += fmt::format("; and {} more", sentences.size() - kMostSentences);
  return text;
}

// Returns whether `from` names this checkpoint or its folder.
bool Names(const std::string& from, const std::string& folder, const std::string& path) {
  if (from.empty()) return false;
  std::error_code error;
  const auto named = std::filesystem::weakly_canonical(from, error);
  if (error) return false;
  const auto same = [&named, &error](const std::string& other) {
    return std::filesystem::weakly_canonical(other, error) == named && !error;
  };
  return same(folder) || same(path);
}

struct Accepted {
  std::vector<std::string> changed;
  std::vector<std::string> noted;
  Json parent;
};

// Decides whether a run of this identity continues from the checkpoint in `path`. Errors: kInvalid, with each
// difference.
Result<Accepted> Accept(const std::string& folder, const std::string& path, int64_t step,
                        const std::string& model, const Json& meta, const Identity& identity) {
  Accepted accepted;
  if (identity.model.empty()) return accepted;
  const Comparison comparison = Compare(meta, identity);
  if (model == identity.model) {
    accepted.noted = comparison.noted;
    accepted.parent = ParentOf(meta);
    return accepted;
  }
  std::string differences = Joined(comparison.changed);
  if (!comparison.known)
    differences = fmt::format("it is of {}, this job is {}, and it does not say more", model, identity.model);
  if (!comparison.fixed.empty())
    return Error{Code::kInvalid,
                 fmt::format("{}: the checkpoint is of another run: {}; give the job another folder (--out, "
                             "spec.checkpoint.path), or start over with --fresh",
                             path, Joined(comparison.fixed))};
  if (!Names(identity.from, folder, path))
    return Error{
        Code::kInvalid,
        fmt::format("{}: the checkpoint is of another run: {}. To continue from it with these changes, set "
                    "spec.checkpoint.from to it; otherwise give the job another folder (--out, "
                    "spec.checkpoint.path), or start over with --fresh",
                    path, differences)};
  accepted.changed = comparison.changed;
  if (!comparison.known) accepted.changed = {"the checkpoint does not name its run and settings"};
  accepted.noted = comparison.noted;
  accepted.parent = {{"run", RunOf(meta)}, {"step", step}, {"path", path}, {"changed", accepted.changed}};
  return accepted;
}

Result<Loaded> Accept(const std::string& folder, Loaded loaded, const Identity& identity) {
  RM_ASSIGN(Accepted accepted, Accept(folder, loaded.path, loaded.step, loaded.model, loaded.meta, identity));
  loaded.changed = std::move(accepted.changed);
  loaded.noted = std::move(accepted.noted);
  loaded.parent = std::move(accepted.parent);
  return loaded;
}

bool Exists(const std::string& path) {
  std::error_code error;
  const auto type = std::filesystem::symlink_status(path, error).type();
  return type != std::filesystem::file_type::not_found;
}

Result<Loaded> LoadNewestOf(const std::string& folder, const Identity& identity,
                            const std::atomic<bool>* cancel, WorkCounter* counter) {
  Patience patience(cancel);
  std::map<int64_t, Error> failed;
  while (true) {
    // Listed again after each failure: another process may have removed or replaced the checkpoint.
    const auto steps = StepsIn(folder);
    if (!steps.ok()) {
      if (patience.TryAgain(steps.error())) continue;
      return steps.error();
    }
    const auto newest = std::find_if(steps->rbegin(), steps->rend(),
                                     [&failed](int64_t step) { return !failed.contains(step); });
    if (newest == steps->rend()) break;
    const std::string path = folder + "/" + StepName(*newest);
    auto loaded = LoadFolderWithinMemory(path, cancel, counter);
    if (!loaded.ok()) {
      if (patience.TryAgain(loaded.error())) continue;
      // Fall back to an older checkpoint only after damage (or a failed read). If this process may not read
      // it, has too little memory, or does not know its version, a silent fallback would lose steps.
      const Code code = loaded.error().code;
      if (code != Code::kCorrupt && code != Code::kUnavailable) return loaded;
      if (Exists(path)) failed.emplace(*newest, loaded.error());
      continue;
    }
    RM_ASSIGN(Loaded accepted, Accept(folder, std::move(loaded).value(), identity));
    for (auto skipped = failed.rbegin(); skipped != failed.rend(); ++skipped) {
      accepted.skipped.push_back(skipped->second.message);
      accepted.skipped_unread |= skipped->second.code == Code::kUnavailable;
    }
    return accepted;
  }
  if (failed.empty()) return Error{Code::kNotFound, folder + ": has no checkpoint"};
  std::string all;
  for (auto skipped = failed.rbegin(); skipped != failed.rend(); ++skipped) {
    all += "\n  " + skipped->second.message;
    if (skipped->second.code == Code::kUnavailable) return skipped->second;
  }
  return Error{Code::kCorrupt,
               folder +
                   ": every checkpoint is damaged; restore one from a copy, or start over with "
                   "--fresh:" +
                   all};
}

bool IsOneCheckpoint(const std::string& path) {
  std::error_code error;
  return ParseStepName(std::filesystem::path(path).filename().string()).has_value() ||
         std::filesystem::exists(path + "/" + std::string(kManifestName), error);
}

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

Result<Loaded> LoadOne(const std::string& path, const std::atomic<bool>* cancel, WorkCounter* counter) {
  Patience patience(cancel);
  while (true) {
    auto loaded = LoadFolderWithinMemory(path, cancel, counter);
    if (loaded.ok() || !patience.TryAgain(loaded.error())) return loaded;
  }
}

// Loads the checkpoint that `identity.from` names.
Result<Loaded> LoadFrom(const Identity& identity, const std::atomic<bool>* cancel, WorkCounter* counter) {
  const std::string from = WithoutSlash(identity.from);
  if (!IsOneCheckpoint(from)) return LoadNewestOf(from, identity, cancel, counter);
  RM_ASSIGN(Loaded loaded, LoadOne(from, cancel, counter));
  return Accept(from, std::move(loaded), identity);
}

}  // namespace

std::span<const float> Loaded::Part::Floats() const {
  CHECK(bytes.size() % sizeof(float) == 0);
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::vector<std::string> Loaded::AllChanges() const {
  std::vector<std::string> all = changed;
  all.insert(all.end(), noted.begin(), noted.end());
  return all;
}

const Loaded::Part* Loaded::Find(const std::string& name) const {
  for (const Part& part : arrays) {
    if (part.name == name) return &part;
  }
  return nullptr;
}

Result<Loaded> LoadNewest(const std::string& folder, const Identity& identity,
                          const std::atomic<bool>* cancel, WorkCounter* counter) {
  auto own = LoadNewestOf(folder, identity, cancel, counter);
  if (own.ok() || own.error().code != Code::kNotFound || identity.from.empty()) return own;
  const auto found = LoadFrom(identity, cancel, counter);
  if (!found.ok()) return found.error().In("spec.checkpoint.from");
  return found;
}

Result<Loaded> LoadNewest(const std::string& folder, const std::string& expected_model,
                          const std::atomic<bool>* cancel, WorkCounter* counter) {
  Identity identity;
  identity.model = expected_model;
  return LoadNewest(folder, identity, cancel, counter);
}

Newest FindNewest(const std::string& folder, const Identity& identity) {
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
      continue;
    }
    const auto accepted = Accept(folder, path, manifest->step, manifest->model, manifest->meta, identity);
    if (!accepted.ok()) return {-1, accepted.error().message};
    newest.step = *step;
  }
  newest.text = newest.step < 0 ? folder + " has no checkpoint"
                                : fmt::format("the newest in {} is of step {}", folder, newest.step);
  newest.text += skipped;
  return newest;
}

Newest FindNewest(const std::string& folder, const std::string& expected_model) {
  Identity identity;
  identity.model = expected_model;
  return FindNewest(folder, identity);
}

Result<Loaded> Load(const std::string& path, WorkCounter* counter) {
  const std::string folder = WithoutSlash(path);
  if (!IsOneCheckpoint(folder)) return LoadNewest(folder, "", nullptr, counter);
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return Error{Code::kNotFound, folder + ": is not a folder; give a checkpoint folder (.../step-...)"};
  }
  return LoadOne(folder, nullptr, counter);
}

std::string NoteOfOldPath(const std::string& folder, const std::string& run) {
  const std::string tail = "/" + run;
  if (run.empty() || !folder.ends_with(tail)) return "";
  const std::string above = folder.substr(0, folder.size() - tail.size());
  const std::vector<int64_t> steps = List(above);
  if (steps.empty()) return "";
  return fmt::format(
      "{} has no checkpoint, and {} has one of step {}: the default folder has changed. To continue from it, "
      "set "
      "spec.checkpoint.from or spec.checkpoint.path to {}",
      folder, above, steps.back(), above);
}

Json FindParent(const std::string& folder, const Identity& identity) {
  const auto steps = StepsIn(folder);
  if (steps.ok()) {
    for (auto step = steps->rbegin(); step != steps->rend(); ++step) {
      const auto manifest = ReadManifest(folder + "/" + StepName(*step));
      if (manifest.ok() && manifest->model == identity.model) return ParentOf(manifest->meta);
    }
  }
  return identity.from.empty() ? Json() : Json{{"path", identity.from}};
}

int64_t BytesIn(const std::string& folder) {
  int64_t bytes = 0;
  const auto steps = StepsIn(folder);
  if (!steps.ok()) return 0;
  for (const int64_t step : *steps) {
    const std::string path = folder + "/" + StepName(step);
    std::error_code error;
    if (std::filesystem::is_symlink(path, error)) continue;
    for (const std::string& name : NamesIn(path)) {
      const auto size = std::filesystem::file_size(path + "/" + name, error);
      if (!error && IsOurFile(name)) bytes += static_cast<int64_t>(size);
    }
  }
  return bytes;
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
