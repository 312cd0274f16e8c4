// SPDX-License-Identifier: Apache-2.0

#include "cli/weights/checkpoint_views.h"

#include <fmt/format.h>

#include <ctime>

#include "base/hash.h"
#include "cli/cluster/status_screen.h"
#include "worker/checkpoint/identity.h"

namespace ringmaster::cli {
namespace {

using checkpoint::CatalogEntry;
using Kind = CatalogEntry::Kind;
using Table = std::vector<std::vector<std::string>>;

const char* StateOf(Kind kind) {
  switch (kind) {
    case Kind::kWhole:
      return "whole";
    case Kind::kDamaged:
      return "damaged";
    case Kind::kUnreadable:
      return "unreadable";
    case Kind::kWritten:
      return "being written";
    case Kind::kLeftOver:
      return "left over";
    case Kind::kForeign:
      break;
  }
  return "foreign";
}

// "2026-01-31T12:00:00Z"
std::string TimeText(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : DumpJson(value);
}

// "default/gpt-text, step 300"
std::string ParentText(const Json& parent) {
  std::string text(json::Text(parent, "run"));
  if (text.empty()) text = json::Text(parent, "path");
  if (parent.is_object() && parent.contains("step")) text += ", step " + TextOf(parent["step"]);
  return text.empty() ? "-" : text;
}

// The run that wrote it; without an identity, "an unknown run".
std::string RunText(const CatalogEntry& entry) {
  return entry.manifest.meta.is_object() ? checkpoint::RunOf(entry.manifest.meta) : "-";
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Appends a row for each value in an object of settings: "spec.training.seed", "1".
void AddValues(const std::string& name, const Json& value, Table* rows) {
  if (!value.is_object()) {
    rows->push_back({"  " + name, TextOf(value)});
    return;
  }
  for (const auto& [key, member] : value.items())
    AddValues(name.empty() ? key : name + "." + key, member, rows);
}

Json EntryJson(const CatalogEntry& entry) {
  Json json = {{"name", entry.name},
               {"step", entry.step},
               {"state", StateOf(entry.kind)},
               {"bytes", entry.bytes},
               {"written", TimeText(entry.written_s)}};
  if (!entry.is_checkpoint()) return json;
  json["link"] = entry.link;
  json["otherFiles"] = entry.other_files;
  if (!entry.problem.empty()) json["problem"] = entry.problem;
  if (entry.manifest.meta.is_object()) {
    json["run"] = checkpoint::RunOf(entry.manifest.meta);
    json["model"] = entry.manifest.model;
    json["stateHashes"] = entry.manifest.state;
    json["parent"] = checkpoint::ParentOf(entry.manifest.meta);
  }
  return json;
}

}  // namespace

std::string SizeText(int64_t bytes) {
  if (bytes >= 1'000'000'000) return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
}

std::string ListText(const std::string& folder, const std::vector<CatalogEntry>& entries) {
  Table table = {{"STEP", "STATE", "SIZE", "WRITTEN", "RUN", "PARENT"}};
  std::string notes;
  std::vector<std::string> foreign;
  for (const CatalogEntry& entry : entries) {
    if (entry.kind == Kind::kForeign) {
      foreign.push_back(entry.name);
      continue;
    }
    table.push_back({std::to_string(entry.step),
                     std::string(StateOf(entry.kind)) + (entry.link ? " (link)" : ""), SizeText(entry.bytes),
                     TimeText(entry.written_s), RunText(entry),
                     ParentText(checkpoint::ParentOf(entry.manifest.meta))});
    if (!entry.problem.empty()) notes += entry.problem + "\n";
    if (!entry.other_files.empty())
      notes += fmt::format("{}/{}: also has {}, which Ringmaster did not write\n", folder, entry.name,
                           Joined(entry.other_files));
  }
  if (!foreign.empty())
    notes += fmt::format("{}: also has {}, which Ringmaster did not write and never changes\n", folder,
                         Joined(foreign));
  return (table.size() == 1 ? folder + ": has no checkpoint\n" : Columns(table)) + notes;
}

Json ListJson(const std::string& folder, const std::vector<CatalogEntry>& entries) {
  Json list = {{"folder", folder},
               {"checkpoints", Json::array()},
               {"temporary", Json::array()},
               {"foreign", Json::array()}};
  for (const CatalogEntry& entry : entries) {
    if (entry.kind == Kind::kForeign)
      list["foreign"].push_back(entry.name);
    else
      list[entry.is_checkpoint() ? "checkpoints" : "temporary"].push_back(EntryJson(entry));
  }
  return list;
}

std::string ShowText(const std::string& folder, const CatalogEntry& entry) {
  const checkpoint::Manifest& manifest = entry.manifest;
  const Json& identity = json::Child(manifest.meta, "identity");
  const Json& parent = checkpoint::ParentOf(manifest.meta);
  Table head = {{"checkpoint", folder + "/" + entry.name},
                {"step", std::to_string(entry.step)},
                {"state", StateOf(entry.kind)},
                {"run", RunText(entry)},
                {"parent", ParentText(parent)}};
  if (const auto path = json::Text(parent, "path"); !path.empty()) head.push_back({"", std::string(path)});
  for (const Json& change : json::Items(parent, "changed")) head.push_back({"", TextOf(change)});
  head.push_back({"written", TimeText(entry.written_s)});
  head.push_back({"size", SizeText(entry.bytes)});
  head.push_back({"model", manifest.model.empty() ? "-" : manifest.model});
  head.push_back({"state hashes", manifest.state.empty() ? "-" : manifest.state});
  if (!entry.problem.empty()) head.push_back({"problem", entry.problem});
  if (!entry.other_files.empty()) head.push_back({"other files", Joined(entry.other_files)});
  std::string text = Columns(head);
  for (const char* part : {"settings", "notes"}) {
    Table rows;
    AddValues("", json::Child(identity, part), &rows);
    if (json::Child(identity, part).is_object() && !rows.empty())
      text += fmt::format("{}\n{}", part, Columns(rows));
  }
  Table files = {{"FILE", "BYTES", "XXH3", "ARRAY", "TYPE"}};
  for (const checkpoint::ArrayEntry& array : manifest.arrays)
    for (const checkpoint::Chunk& chunk : array.chunks)
      files.push_back({chunk.file, std::to_string(chunk.bytes), HashHex(chunk.hash), array.name, array.type});
  return files.size() == 1 ? text : text + Columns(files);
}

Json ShowJson(const std::string& folder, const CatalogEntry& entry) {
  Json show = EntryJson(entry);
  show["path"] = folder + "/" + entry.name;
  show["identity"] = json::Child(entry.manifest.meta, "identity");
  show["arrays"] = Json::array();
  for (const checkpoint::ArrayEntry& array : entry.manifest.arrays) {
    Json files = Json::array();
    for (const checkpoint::Chunk& chunk : array.chunks)
      files.push_back({{"file", chunk.file}, {"bytes", chunk.bytes}, {"xxh3", HashHex(chunk.hash)}});
    show["arrays"].push_back(
        {{"name", array.name}, {"type", array.type}, {"bytes", array.bytes}, {"files", std::move(files)}});
  }
  return show;
}

std::string VerifyText(const std::vector<Verified>& verified) {
  std::string text;
  for (const Verified& one : verified) {
    text += fmt::format(
        "step {}: {}\n", one.entry.step,
        one.damage.empty() ? "whole, " + SizeText(one.entry.bytes) : StateOf(checkpoint::KindOf(one.damage)));
    for (const Error& error : one.damage) text += "  " + error.message + "\n";
  }
  return text;
}

Json VerifyJson(const std::string& folder, const std::vector<Verified>& verified) {
  Json list = {{"folder", folder}, {"checkpoints", Json::array()}};
  for (const Verified& one : verified) {
    Json damage = Json::array();
    for (const Error& error : one.damage) damage.push_back(error.message);
    list["checkpoints"].push_back({{"step", one.entry.step},
                                   {"whole", one.damage.empty()},
                                   {"state", StateOf(checkpoint::KindOf(one.damage))},
                                   {"bytes", one.entry.bytes},
                                   {"damage", damage}});
  }
  return list;
}

}  // namespace ringmaster::cli
