// SPDX-License-Identifier: Apache-2.0

#include "worker/data/split_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "worker/data/folder.h"
#include "worker/data/problem.h"

namespace ringmaster::data {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostListed = 4;

constexpr struct {
  std::string_view word;
  Part part;
} kWords[] = {
    {"train", Part::kTrain},      {"training", Part::kTrain},        {"val", Part::kValidation},
    {"valid", Part::kValidation}, {"validation", Part::kValidation}, {"dev", Part::kValidation},
    {"test", Part::kTest},
};

Part PartOfWord(std::string_view word) {
  for (const auto& known : kWords)
    if (known.word == word) return known.part;
  return Part::kUnnamed;
}

// Splits "wiki.train.tokens" and "fineweb_train_000001.bin" into words, in lower case.
std::vector<std::string> WordsOf(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (c == '.' || c == '_' || c == '-')
      words.emplace_back();
    else
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  std::erase(words, "");
  return words;
}

bool IsNumber(const std::string& word) { return word.find_first_not_of("0123456789") == std::string::npos; }

bool IsSuffix(const std::string& word) {
  return IsNumber(word) || word == "of" || word == "txt" || word == "raw" || word == "tokens" ||
         word == "bin";
}

// The name ends with the word, apart from its extension and the numbers of shards. A word elsewhere in a
// title
// ("how-to-train-your-dragon.txt", "test-drive.txt") names no part.
Part PartOfFile(const std::string& name) {
  std::vector<std::string> words = WordsOf(name);
  if (words.size() > 1) words.pop_back();  // the extension
  while (words.size() > 1 && IsSuffix(words.back())) words.pop_back();
  return words.empty() ? Part::kUnnamed : PartOfWord(words.back());
}

std::string Canonical(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(path, error);
  return (error ? fs::path(path) : canonical).string();
}

bool IsBelow(const std::string& path, const std::string& folder) {
  return path.size() > folder.size() && path.starts_with(folder) &&
         (folder.ends_with('/') || path[folder.size()] == '/');
}

std::string Relative(const std::string& file, const std::string& folder) {
  return IsBelow(file, folder) ? fs::path(file).lexically_relative(folder).string() : file;
}

// "train.bin, more/train.bin and 3 more"
std::string List(const std::vector<std::string>& files, const std::string& folder) {
  std::string list;
  for (size_t i = 0; i < std::min(files.size(), kMostListed); ++i)
    list += (i == 0 ? "" : ", ") + Relative(files[i], folder);
  if (files.size() > kMostListed) list += fmt::format(" and {} more", files.size() - kMostListed);
  return list;
}

void RemoveThose(const std::vector<std::string>& others, std::vector<std::string>* files) {
  std::set<std::string> canonical;
  for (const std::string& other : others) canonical.insert(Canonical(other));
  std::erase_if(*files, [&](const std::string& file) { return canonical.contains(Canonical(file)); });
}

// Gives each part of a folder its files, if their names divide it into training and another part.
Status DivideByName(const std::string& path, bool validation_given, SplitFiles* split) {
  std::vector<std::string> parts[4];
  for (const std::string& file : split->train)
    parts[static_cast<size_t>(NamedPart(Relative(file, path)))].push_back(file);
  auto& [unnamed, train, validation, test] = parts;
  if (train.empty() || (validation.empty() && test.empty())) {
    std::vector<std::string> odd = validation;
    odd.insert(odd.end(), test.begin(), test.end());
    if (!odd.empty() && !unnamed.empty())
      split->notes.push_back(fmt::format("{}: {} trained on, because no file of the folder is named train",
                                         path, List(odd, path) + (odd.size() == 1 ? " is" : " are")));
    return Ok();
  }
  if (!unnamed.empty())
    return Problem(
        Code::kInvalid, path,
        fmt::format("{} for training, {} for validation or test, and {} without a part in the name",
                    List(train, path), List(validation.empty() ? test : validation, path),
                    List(unnamed, path)),
        "move files elsewhere, or give the training files a folder and name it in path, and the "
        "validation file in validationPath");
  std::string unused;
  if (validation_given) {
    validation.insert(validation.end(), test.begin(), test.end());
    unused = List(validation, path);
  } else if (validation.empty()) {
    split->validation = std::move(test);
  } else {
    unused = List(test, path);
    split->validation = std::move(validation);
  }
  split->train = std::move(train);
  std::string note = fmt::format("{}: {} for training", path, List(split->train, path));
  if (!validation_given) note += fmt::format(", {} for validation", List(split->validation, path));
  if (!unused.empty()) note += fmt::format(", {} not used", unused);
  split->notes.push_back(note);
  return Ok();
}

}  // namespace

Part NamedPart(const std::string& relative_path) {
  const fs::path path(relative_path);
  for (const fs::path& folder : path.parent_path()) {
    const std::vector<std::string> words = WordsOf(folder.string());
    if (words.size() != 1) continue;
    if (const Part part = PartOfWord(words.front()); part != Part::kUnnamed) return part;
  }
  return PartOfFile(path.filename().string());
}

Result<SplitFiles> FindSplit(const std::string& path, const std::string& validation_path,
                             const std::string& suffix) {
  SplitFiles split;
  RM_ASSIGN(split.train, FilesBelow(path, suffix));
  if (!validation_path.empty()) {
    RM_ASSIGN(split.validation, FilesBelow(validation_path, suffix));
    const std::string train_root = Canonical(path);
    const std::string validation_root = Canonical(validation_path);
    if (IsBelow(validation_root, train_root)) {
      const size_t before = split.train.size();
      RemoveThose(split.validation, &split.train);
      if (split.train.empty() && before > 0)
        return Problem(Code::kInvalid, path, fmt::format("has no file outside of {}", validation_path),
                       "give files for training that are not for validation");
      if (split.train.size() < before)
        split.notes.push_back(fmt::format("{}: {} for validation only", path, List(split.validation, path)));
    } else if (IsBelow(train_root, validation_root)) {
      RemoveThose(split.train, &split.validation);
    } else if (train_root == validation_root) {
      split.notes.push_back(
          fmt::format("{}: is also validationPath: the validation data is trained on", path));
      return split;
    }
  }
  if (!IsFolder(path)) return split;
  RM_TRY(DivideByName(path, !validation_path.empty(), &split));
  return split;
}

}  // namespace ringmaster::data
