// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/hash.h"

namespace ringmaster::checkpoint {
namespace {

constexpr const char* kMember = "identity";
constexpr size_t kMaxValue = 120;  // characters of a value in a message

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : DumpJson(value);
}

// Returns the part of `text` from `begin`, which is where it differs from another one.
std::string Excerpt(const std::string& text, size_t begin) {
  if (text.size() <= kMaxValue) return text;
  const size_t from = begin < kMaxValue / 2 ? 0 : begin - kMaxValue / 2;
  return (from > 0 ? "..." : "") + text.substr(from, kMaxValue) +
         (from + kMaxValue < text.size() ? "..." : "");
}

std::string Change(const std::string& name, const Json& theirs, const Json& ours) {
  const std::string was = TextOf(theirs);
  const std::string is = TextOf(ours);
  const auto begin = static_cast<size_t>(std::ranges::mismatch(was, is).in1 - was.begin());
  return fmt::format("{} is {} and was {}", name, Excerpt(is, begin), Excerpt(was, begin));
}

const Json& MemberOf(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

// Appends a sentence for each value that differs.
void CompareValues(const std::string& name, const Json& theirs, const Json& ours,
                   std::vector<std::string>* changes) {
  if (theirs == ours) return;
  if (theirs.is_object() && ours.is_object()) {
    std::set<std::string> names;
    for (const auto& [key, value] : theirs.items()) names.insert(key);
    for (const auto& [key, value] : ours.items()) names.insert(key);
    for (const std::string& key : names) {
      CompareValues(name.empty() ? key : name + "." + key, MemberOf(theirs, key.c_str()),
                    MemberOf(ours, key.c_str()), changes);
    }
    return;
  }
  if (theirs.is_null()) {
    changes->push_back(fmt::format("{} is {} and was not set", name, Excerpt(TextOf(ours), 0)));
  } else if (ours.is_null()) {
    changes->push_back(fmt::format("{} is not set and was {}", name, Excerpt(TextOf(theirs), 0)));
  } else {
    changes->push_back(Change(name, theirs, ours));
  }
}

}  // namespace

Identity MakeIdentity(std::string_view prefix, Identity identity) {
  const std::string text = DumpJson({{"run", identity.run}, {"settings", identity.settings}});
  const uint64_t hash = Hash64(std::as_bytes(std::span(text.data(), text.size())));
  identity.model = prefix.empty() ? HashHex(hash) : fmt::format("{}-{}", prefix, HashHex(hash));
  return identity;
}

Json DescribeIdentity(const Identity& identity, const Json& parent) {
  Json described = {{"run", identity.run}, {"settings", identity.settings}, {"notes", identity.notes}};
  if (!parent.is_null()) described["parent"] = parent;
  return described;
}

Comparison Compare(const Json& meta, const Identity& ours) {
  Comparison comparison;
  const Json& theirs = MemberOf(meta, kMember);
  comparison.known = theirs.is_object();
  if (!comparison.known) return comparison;
  CompareValues("the job", MemberOf(theirs, "run"), Json(ours.run), &comparison.changed);
  const Json& settings = MemberOf(theirs, "settings");
  CompareValues("", settings.is_object() ? settings : Json::object(), ours.settings, &comparison.changed);
  const Json& notes = MemberOf(theirs, "notes");
  CompareValues("", notes.is_object() ? notes : Json::object(), ours.notes, &comparison.noted);
  for (const std::string& change : comparison.changed) {
    const auto begins = [&change](const std::string& prefix) { return change.starts_with(prefix); };
    if (std::ranges::any_of(ours.fixed, begins)) comparison.fixed.push_back(change);
  }
  if (ours.different_arrays != nullptr) {
    if (std::string arrays = ours.different_arrays(meta); !arrays.empty())
      comparison.fixed.push_back(std::move(arrays));
  }
  return comparison;
}

std::string RunOf(const Json& meta) {
  const Json& run = MemberOf(MemberOf(meta, kMember), "run");
  return run.is_string() && !run.get_ref<const std::string&>().empty() ? run.get<std::string>()
                                                                       : "an unknown run";
}

Json ParentOf(const Json& meta) { return MemberOf(MemberOf(meta, kMember), "parent"); }

}  // namespace ringmaster::checkpoint
