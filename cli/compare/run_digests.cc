// SPDX-License-Identifier: Apache-2.0

#include "cli/compare/run_digests.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/file.h"
#include "base/json.h"

namespace ringmaster::cli {
namespace {

std::optional<uint64_t> HashOf(const Json& value) {
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return hash;
}

Number NumberOf(const Json& object, const char* key) {
  const Json& value = json::Child(object, key);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

// The lines of one file.
class DigestFile {
 public:
  explicit DigestFile(RunDigests* run) : run_(run) {}

  Status Read(std::string_view line) {
    RM_ASSIGN(const Json record, ParseJson(line));
    if (tensors_ == nullptr) return ReadFirst(record);
    RM_ASSIGN(const int64_t step, JsonInt(record, "step"));
    if (record.contains("microBatch")) return ReadMicroBatch(step, record);
    if (record.contains("state")) return ReadState(step, record);
    run_->steps[step].commits.push_back({worker_, NumberOf(record, "loss"), NumberOf(record, "gradientNorm"),
                                         NumberOf(record, "learningRate")});
    return Ok();
  }
  bool begun() const { return tensors_ != nullptr; }

 private:
  Status ReadFirst(const Json& record) {
    RM_ASSIGN(const int64_t format, JsonInt(record, "digests"));
    if (format != 1) return Error{Code::kInvalid, fmt::format("format {} is not known", format)};
    RM_ASSIGN(worker_, JsonString(record, "worker"));
    std::vector<std::string> names;
    for (const Json& name : json::Items(record, "tensors"))
      if (name.is_string()) names.push_back(name.get<std::string>());
    tensors_ = std::make_shared<const std::vector<std::string>>(std::move(names));
    return Ok();
  }

  Status ReadMicroBatch(int64_t step, const Json& record) {
    RM_ASSIGN(const int64_t v, JsonInt(record, "microBatch"));
    MicroBatchDigest digest{worker_, NumberOf(record, "loss"), NumberOf(record, "weight"), tensors_, {}};
    for (const Json& hash : json::Items(record, "gradients")) digest.gradients.push_back(HashOf(hash));
    if (digest.gradients.size() != tensors_->size())
      return Error{Code::kInvalid,
                   fmt::format("{} gradients of {} tensors", digest.gradients.size(), tensors_->size())};
    run_->steps[step].micro_batches[v].push_back(std::move(digest));
    return Ok();
  }

  Status ReadState(int64_t step, const Json& record) {
    StateDigest digest{worker_, {}};
    for (const Json& item : json::Items(record, "state")) {
      const std::optional<uint64_t> hash =
          item.is_array() && item.size() == 2 && item[0].is_string() ? HashOf(item[1]) : std::nullopt;
      if (!hash) return Error{Code::kInvalid, "an array of the state has no name or no hash"};
      digest.arrays.emplace_back(item[0].get<std::string>(), *hash);
    }
    run_->steps[step].states.push_back(std::move(digest));
    return Ok();
  }

  RunDigests* run_;
  std::string worker_;
  std::shared_ptr<const std::vector<std::string>> tensors_;
};

// Returns whether the file has digests.
Result<bool> ReadDigests(const std::string& path, RunDigests* run) {
  std::ifstream file(path);
  DigestFile digests(run);
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (file.eof()) break;  // it has no newline: its worker was killed
    const Status read = digests.Read(line);
    if (read.ok()) continue;
    if (number == 1) return false;
    return Error{Code::kCorrupt, fmt::format("{}:{}: {}", path, number, read.error().message)};
  }
  if (file.bad()) return Error{Code::kUnavailable, path + ": cannot be read"};
  return digests.begun();
}

}  // namespace

Result<RunDigests> LoadDigests(const std::string& folder) {
  namespace fs = std::filesystem;
  RunDigests run{folder, {}};
  std::error_code error;
  const std::string inner = folder + "/digests";
  const std::string place = fs::is_directory(inner, error) ? inner : folder;
  std::vector<std::string> paths;
  for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".jsonl") paths.push_back(it->path().string());
  if (error) return Error{Code::kNotFound, place + ": " + error.message()};
  std::sort(paths.begin(), paths.end());
  bool any = false;
  for (const std::string& path : paths) {
    RM_ASSIGN(const bool has, ReadDigests(path, &run));
    any = any || has;
  }
  if (!any)
    return Error{Code::kNotFound, folder +
                                      ": has no digests; record them by `ringmaster run --digests`, or by "
                                      "rm.init(digests=...) in the program"};
  return run;
}

}  // namespace ringmaster::cli
