// SPDX-License-Identifier: Apache-2.0

// A manifest of another operator, and what its conversion has not used. Whatever a converter does not take is
// reported, so no field of the source can be lost in silence. A TrainJob has a second manifest: the paths of
// its runtime begin with "runtime". Value type; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/node.h"

namespace ringmaster::cli::convert {

struct Remark {
  std::string path;  // in the source: spec.runPolicy.backoffLimit
  std::string message;
  bool refused = false;  // the job cannot be converted; otherwise something is missing from the result
  api::Mark mark;        // in the text; line 0: unknown
};

class Source {
 public:
  explicit Source(const api::Node& root) : root_(root) {}

  // `runtime` must outlive this object. A remark on a runtime that is not from a text is placed at
  // `reference`, a path of the job.
  void AddRuntime(const api::Node& runtime, std::string reference);

  // Returns the value at the path and counts it as used, with everything in it. Null: missing, or null.
  const api::Node* Take(const std::string& path);
  // Returns nullopt when the value is missing. A value of another type is a refusal.
  std::optional<std::string> TakeText(const std::string& path);
  std::optional<int64_t> TakeInteger(const std::string& path);
  std::optional<bool> TakeFlag(const std::string& path);
  std::optional<Json> TakeObject(const std::string& path);
  // Does not count the value as used.
  const api::Node* Find(const std::string& path) const;

  void Note(const std::string& path, std::string message);
  void Refuse(const std::string& path, std::string message);
  // Notes each value that was not used. `remedy` returns what to write for a path; empty: there is no remedy.
  void NoteUnused(std::string (*remedy)(const std::string& path));

  const std::vector<Remark>& remarks() const { return remarks_; }
  bool refused() const;

 private:
  void Collect(const api::Node& node, const std::string& path,
               std::string (*remedy)(const std::string& path));
  void Add(const std::string& path, std::string message, bool refused);

  const api::Node& root_;
  const api::Node* runtime_ = nullptr;
  std::string reference_;
  std::set<std::string> used_;
  std::vector<Remark> remarks_;
};

}  // namespace ringmaster::cli::convert
