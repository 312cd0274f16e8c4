// SPDX-License-Identifier: Apache-2.0

#include "cli/compare/run_digests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>
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

// The converse of worker/library/step_digests.cc.
Result<Number> NumberOf(const Json& object, const char* key) {
  const Json& value = json::Child(object, key);
  if (value.is_number()) return Number(value.get<double>());
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (text == "nan") return Number(std::numeric_limits<double>::quiet_NaN());
  if (text == "inf") return Number(std::numeric_limits<double>::infinity());
  if (text == "-inf") return Number(-std::numeric_limits<double>::infinity());
  return Error{Code::kInvalid, fmt::format("{} is no number", key)};
}

// The lines of one file.
class DigestFile {
 public:
  DigestFile(std::string path, RunDigests* run) : path_(std::move(path)), run_(run) {}

  Status Read(std::string_view line) {
    RM_ASSIGN(const Json record, ParseJson(line));
    if (tensors_ == nullptr) return ReadFirst(record);
    RM_ASSIGN(const int64_t step, JsonInt(record, "step"));
    if (record.contains("microBatch")) return ReadMicroBatch(step, record);
    if (record.contains("state")) return ReadState(step, record);
    RM_ASSIGN(const Number loss, NumberOf(record, "loss"));
    RM_ASSIGN(const Number norm, NumberOf(record, "gradientNorm"));
    RM_ASSIGN(const Number rate, NumberOf(record, "learningRate"));
    run_->steps[step].commits.push_back({source_, loss, norm, rate});
    return Ok();
  }
  bool begun() const { return tensors_ != nullptr; }
  const std::string& run() const { return of_run_; }

 private:
  Status ReadFirst(const Json& record) {
    RM_ASSIGN(const int64_t format, JsonInt(record, "digests"));
    if (format != 1) return Error{Code::kInvalid, fmt::format("format {} is not known", format)};
    RM_ASSIGN(of_run_, JsonString(record, "run"));
    RM_ASSIGN(std::string worker, JsonString(record, "worker"));
    source_ = std::make_shared<const DigestSource>(DigestSource{std::move(worker), path_});
    std::vector<std::string> names;
    for (const Json& name : json::Items(record, "tensors"))
      if (name.is_string()) names.push_back(name.get<std::string>());
    tensors_ = std::make_shared<const std::vector<std::string>>(std::move(names));
    return Ok();
  }

  Status ReadMicroBatch(int64_t step, const Json& record) {
    RM_ASSIGN(const int64_t v, JsonInt(record, "microBatch"));
    RM_ASSIGN(const Number loss, NumberOf(record, "loss"));
    Number weight;
    if (record.contains("weight")) {
      RM_ASSIGN(weight, NumberOf(record, "weight"));
    }
    MicroBatchDigest digest{source_, loss, weight, tensors_, {}};
    for (const Json& hash : json::Items(record, "gradients")) digest.gradients.push_back(HashOf(hash));
    if (digest.gradients.size() != tensors_->size())
      return Error{Code::kInvalid,
                   fmt::format("{} gradients of {} tensors", digest.gradients.size(), tensors_->size())};
    run_->steps[step].micro_batches[v].push_back(std::move(digest));
    return Ok();
  }

  Status ReadState(int64_t step, const Json& record) {
    StateDigest digest{source_, {}};
    for (const Json& item : json::Items(record, "state")) {
      const std::optional<uint64_t> hash =
          item.is_array() && item.size() == 2 && item[0].is_string() ? HashOf(item[1]) : std::nullopt;
      if (!hash) return Error{Code::kInvalid, "an array of the state has no name or no hash"};
      digest.arrays.emplace_back(item[0].get<std::string>(), *hash);
    }
    run_->steps[step].states.push_back(std::move(digest));
    return Ok();
  }

  std::string path_;
  RunDigests* run_;
  std::string of_run_;
  std::shared_ptr<const DigestSource> source_;
  std::shared_ptr<const std::vector<std::string>> tensors_;
};

// Whether the first line of a file is that of another kind of file, such as metrics.jsonl.
bool IsOfAnotherKind(const std::string& line) {
  const Result<Json> record = ParseJson(line);
  return record.ok() && !(record->is_object() && record->contains("digests"));
}

// Returns the run that the file names, nothing if the file has no digests.
Result<std::optional<std::string>> ReadDigests(const std::string& path, RunDigests* run) {
  std::ifstream file(path);
  if (!file.is_open()) return Error{Code::kUnavailable, ErrnoError("open " + path, errno).message};
  DigestFile digests(path, run);
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (file.eof()) break;  // it has no newline: its worker was killed
    if (number == 1 && IsOfAnotherKind(line)) return std::optional<std::string>();
    const Status read = digests.Read(line);
    if (read.ok()) continue;
    return Error{Code::kCorrupt, fmt::format("{}:{}: {}", path, number, read.error().message)};
  }
  if (file.bad()) return Error{Code::kUnavailable, path + ": cannot be read"};
  return digests.begun() ? std::optional(digests.run()) : std::nullopt;
}

// The files that may have digests, sorted.
Result<std::vector<std::string>> FilesOf(const std::string& place) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_regular_file(place, error)) return std::vector{place};
  const std::string inner = place + "/digests";
  const std::string folder = fs::is_directory(inner, error) ? inner : place;
  std::vector<std::string> paths;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".jsonl") paths.push_back(it->path().string());
  if (error) {
    const bool absent = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    return Error{absent ? Code::kNotFound : Code::kUnavailable, folder + ": " + error.message()};
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

Result<RunDigests> LoadDigests(const std::string& place) {
  RunDigests run{place, {}};
  RM_ASSIGN(const std::vector<std::string> paths, FilesOf(place));
  std::optional<std::string> first;
  std::string first_path;
  for (const std::string& path : paths) {
    RM_ASSIGN(const std::optional<std::string> of, ReadDigests(path, &run));
    if (!of) continue;
    if (!first) {
      first = of;
      first_path = path;
    }
    if (*of != *first)
      return Error{
          Code::kInvalid,
          fmt::format("{}: has records of several runs: {} is of {}, and {} of {}; record each run in a new "
                      "folder, or name one of these files instead of the folder",
                      place, first_path, *first, path, *of)};
  }
  if (!first)
    return Error{Code::kNotFound, place +
                                      ": has no digests; record them by `ringmaster run --digests`, or by "
                                      "rm.init(digests=...) in the program"};
  return run;
}

}  // namespace ringmaster::cli
