// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/watch/line.h"

#include <utility>

#include "operator/kube/watch/lean_json.h"

namespace ringmaster::kube {
namespace {

Error Bad(const std::string& what) { return {Code::kInvalid, "watch line: " + what}; }

Result<LineKind> KindOf(const std::string& type) {
  if (type == "ADDED" || type == "MODIFIED") return LineKind::kApply;
  if (type == "DELETED") return LineKind::kDelete;
  if (type == "BOOKMARK") return LineKind::kBookmark;
  if (type == "ERROR") return LineKind::kError;
  return Bad("type \"" + type.substr(0, 32) + "\" is unknown");
}

}  // namespace

Result<WatchLine> ParseWatchLine(std::string_view text) {
  auto parsed = ParseLean(text);
  if (!parsed.ok()) return Bad(parsed.error().message);
  if (!parsed->is_object()) return Bad("not an object");
  const auto type = parsed->find("type");
  const auto object = parsed->find("object");
  if (type == parsed->end() || !type->is_string()) return Bad("no type");
  if (object == parsed->end() || !object->is_object()) return Bad("no object");
  WatchLine line;
  RM_ASSIGN(line.kind, KindOf(type->get_ref<const std::string&>()));
  if (line.kind == LineKind::kError) {
    const auto code = object->find("code");
    if (code != object->end() && code->is_number_integer()) line.error_code = code->get<int>();
    const auto message = object->find("message");
    if (message != object->end() && message->is_string()) line.error_message = message->get<std::string>();
    return line;
  }
  const auto metadata = object->find("metadata");
  if (metadata == object->end() || !metadata->is_object()) return Bad("no metadata");
  const auto version = metadata->find("resourceVersion");
  if (version == metadata->end() || !version->is_string()) return Bad("no resourceVersion");
  line.resource_version = version->get<std::string>();
  line.object = std::move(*object);
  return line;
}

}  // namespace ringmaster::kube
