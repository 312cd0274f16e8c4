// SPDX-License-Identifier: Apache-2.0

// Tables of algorithms that were chosen by measurement, one entry per shape, and their storage: the shared
// part of GemmChoices and AttentionChoices. A table is valid only together with its key, which names the GPU
// and the library. As text, a table goes to a file and to other members of a job:
//
//   MAGIC            names the table and the version of the format
//   KEY
//   SHAPE CHOICE     one line per entry
//
// No access to a device. Value types; not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace ringmaster::cuda {

template <class Shape, class Choice>
class ChoiceTable {
 public:
  // REQUIRES: `key` is one line.
  explicit ChoiceTable(std::string key) : key_(std::move(key)) {}

  const std::string& key() const { return key_; }
  const std::map<Shape, Choice>& all() const { return choices_; }
  // Returns nullptr when the table has no entry for `shape`.
  const Choice* Find(const Shape& shape) const {
    const auto it = choices_.find(shape);
    return it == choices_.end() ? nullptr : &it->second;
  }
  void Set(const Shape& shape, const Choice& choice) { choices_[shape] = choice; }

 private:
  std::string key_;
  std::map<Shape, Choice> choices_;
};

// Properties of the text of one kind of table, for the parser and its messages.
struct ChoiceFormat {
  std::string_view magic;
  std::string_view name;         // "GEMM choices"
  std::string_view requirement;  // what members of a job must have in common: "the same GPU"
};

// Returns the first two lines of the text.
std::string ChoiceHeader(const ChoiceFormat& format, std::string_view key);

// Parses `text` and calls read_line(line, complete) for each entry; `complete` is false when the line has no
// newline. Errors: kInvalid when the text has another key, kCorrupt when it is not a table of this format,
// and those of read_line.
Status ParseChoices(std::string_view text, const ChoiceFormat& format, std::string_view key,
                    const std::function<Status(std::string_view line, bool complete)>& read_line);

// Returns the path of the file that stores a table; `key` identifies GPU, driver and libraries.
std::string ChoicePath(const std::string& folder, std::string_view prefix, std::string_view key);

// Returns the stored text, empty when there is none.
std::string ReadStoredChoices(const std::string& path);
// Stores `text` atomically and creates the folder. Ignores errors: choices that are not stored are measured
// again.
void StoreChoices(const std::string& path, std::string_view text);

}  // namespace ringmaster::cuda
