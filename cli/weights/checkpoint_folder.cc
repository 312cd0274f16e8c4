// SPDX-License-Identifier: Apache-2.0

#include "cli/weights/checkpoint_folder.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/file.h"
#include "worker/checkpoint/names.h"

namespace ringmaster::cli {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxPath = 4096;

Result<int64_t> ParseStep(const std::string& text) {
  if (const auto named = checkpoint::ParseStepName(text)) return *named;
  int64_t step = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error == std::errc() && end == text.data() + text.size() && step >= 0) return step;
  return Error{Code::kInvalid,
               text + ": is not a step; give its number, as `ringmaster checkpoints ls` shows it"};
}

}  // namespace

Result<bool> IsFolder(const std::string& path) {
  std::error_code error;
  const bool is = fs::is_directory(path, error);
  if (!error || error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory)
    return is;
  return ErrnoError("look at " + path, error.value());
}

Result<std::string> CheckpointsOf(const std::string& path) {
  const auto elsewhere = ReadFile(path + "/checkpoint_path", kMaxPath);
  if (!elsewhere.ok() && elsewhere.error().code != Code::kNotFound) return elsewhere.error();
  if (elsewhere.ok()) {
    RM_ASSIGN(const bool there, IsFolder(*elsewhere));
    if (there) return *elsewhere;
  }
  const std::string inside = path + "/checkpoints";
  RM_ASSIGN(const bool has_folder, IsFolder(inside));
  return has_folder ? inside : path;
}

Result<CheckpointPlace> FindCheckpoints(const std::string& path, const std::vector<std::string>& steps) {
  std::string plain = path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  RM_ASSIGN(const bool is_folder, IsFolder(plain));
  if (!is_folder)
    return Error{
        Code::kNotFound,
        fmt::format("{}: no such folder; give the --out folder of a run, a folder of checkpoints, or one "
                    "checkpoint (step-...)",
                    path)};
  CheckpointPlace place;
  const fs::path named(plain);
  if (const auto step = checkpoint::ParseStepName(named.filename().string())) {
    if (!steps.empty())
      return Error{Code::kInvalid,
                   fmt::format("{}: is one checkpoint, so no step can be given; leave {} out, or "
                               "give the folder of checkpoints",
                               path, steps.front())};
    place.folder = named.has_parent_path() ? named.parent_path().string() : ".";
    place.steps = {*step};
  } else {
    RM_ASSIGN(place.folder, CheckpointsOf(plain));
  }
  for (const std::string& text : steps) {
    RM_ASSIGN(const int64_t step, ParseStep(text));
    place.steps.push_back(step);
  }
  std::error_code error;
  const fs::path checkpoints = fs::canonical(place.folder, error);
  if (error) return ErrnoError("look at " + place.folder, error.value());
  const fs::path given = fs::canonical(plain, error);
  if (error) return ErrnoError("look at " + plain, error.value());
  for (const fs::path& folder : std::set<fs::path>{given, checkpoints, checkpoints.parent_path()}) {
    const fs::path lock = folder / ".lock";
    if (fs::is_regular_file(fs::symlink_status(lock, error))) place.locks.push_back(lock.string());
  }
  return place;
}

}  // namespace ringmaster::cli
