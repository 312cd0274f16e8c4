// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/manifest.h"

#include <charconv>
#include <map>
#include <set>

#include "base/hash.h"
#include "worker/checkpoint/names.h"

namespace ringmaster::checkpoint {
namespace {

constexpr std::string_view kHead = "{\"hash\":\"";
constexpr std::string_view kMiddle = "\",\"manifest\":";
constexpr std::string_view kTail = "}\n";
constexpr size_t kHashDigits = 16;
constexpr int64_t kMaxArrayBytes = int64_t{1} << 50;

uint64_t HashOf(std::string_view text) { return Hash64(std::as_bytes(std::span(text.data(), text.size()))); }

// Parses exactly the output of HashHex.
Result<uint64_t> ParseHash(const std::string& digits) {
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  if (error != std::errc() || end != digits.data() + digits.size() || HashHex(hash) != digits) {
    return Error{Code::kCorrupt, "hash: must be sixteen hexadecimal digits"};
  }
  return hash;
}

Result<const Json*> List(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array())
    return Error{Code::kInvalid, fmt::format("{}: must be a list", key)};
  return &*it;
}

Result<Chunk> ParseChunk(const Json& json) {
  Chunk chunk;
  RM_ASSIGN(chunk.file, JsonString(json, "file"));
  RM_ASSIGN(chunk.bytes, JsonInt(json, "bytes"));
  RM_ASSIGN(const std::string digits, JsonString(json, "xxh3"));
  RM_ASSIGN(chunk.hash, ParseHash(digits));
  // Only a plain chunk name: a manifest must not refer to files outside its folder.
  if (!IsChunkName(chunk.file)) return Error{Code::kInvalid, "file: not the name of a chunk"};
  if (chunk.bytes < 1 || chunk.bytes > kMaxArrayBytes) return Error{Code::kInvalid, "bytes: out of range"};
  return chunk;
}

Result<ArrayEntry> ParseArray(const Json& json, std::set<std::string>* files) {
  ArrayEntry array;
  RM_ASSIGN(array.name, JsonString(json, "name"));
  RM_ASSIGN(array.type, JsonString(json, "type"));
  RM_ASSIGN(array.bytes, JsonInt(json, "bytes"));
  RM_ASSIGN(const Json* const chunks, List(json, "chunks"));
  if (array.name.empty()) return Error{Code::kInvalid, "name: must not be empty"};
  const auto element = static_cast<int64_t>(ElementBytes(array.type));
  if (element == 0) return Error{Code::kInvalid, "type: unknown (" + array.type + ")"};
  if (array.bytes < 0 || array.bytes > kMaxArrayBytes || array.bytes % element != 0) {
    return Error{Code::kInvalid, "bytes: out of range"};
  }
  int64_t left = array.bytes;
  for (const Json& item : *chunks) {
    RM_ASSIGN(Chunk chunk, ParseChunk(item));
    if (!files->insert(chunk.file).second) return Error{Code::kInvalid, chunk.file + ": named twice"};
    if (chunk.bytes > left) return Error{Code::kInvalid, "chunks: longer than their array"};
    left -= chunk.bytes;
    array.chunks.push_back(std::move(chunk));
  }
  if (left != 0) return Error{Code::kInvalid, "chunks: shorter than their array"};
  return array;
}

Result<Manifest> ParseBody(const Json& body) {
  if (!body.is_object()) return Error{Code::kInvalid, "must be an object"};
  Manifest manifest;
  RM_ASSIGN(const int64_t format, JsonInt(body, "format"));
  if (format != kFormat) {
    return Error{Code::kInvalid, fmt::format("has format {}, this program reads {}", format, kFormat)};
  }
  RM_ASSIGN(manifest.step, JsonInt(body, "step"));
  if (manifest.step < 0) return Error{Code::kInvalid, "step: must not be negative"};
  RM_ASSIGN(manifest.model, JsonString(body, "model"));
  if (body.contains("state")) {
    RM_ASSIGN(manifest.state, JsonString(body, "state"));
  }
  const auto meta = body.find("meta");
  if (meta == body.end()) return Error{Code::kInvalid, "meta: required"};
  manifest.meta = *meta;
  RM_ASSIGN(const Json* const arrays, List(body, "arrays"));
  std::set<std::string> names;
  std::set<std::string> files;
  for (const Json& item : *arrays) {
    RM_ASSIGN(ArrayEntry array, ParseArray(item, &files));
    if (!names.insert(array.name).second) return Error{Code::kInvalid, array.name + ": named twice"};
    manifest.arrays.push_back(std::move(array));
  }
  return manifest;
}

}  // namespace

size_t ElementBytes(std::string_view type) {
  static const std::map<std::string_view, size_t> kBytes = {
      {"bool", 1}, {"u8", 1},  {"i8", 1},  {"f8_e4m3", 1}, {"f8_e5m2", 1}, {"f8_e8m0", 1},
      {"u16", 2},  {"i16", 2}, {"f16", 2}, {"bf16", 2},    {"u32", 4},     {"i32", 4},
      {"f32", 4},  {"u64", 8}, {"i64", 8}, {"f64", 8},     {"c64", 8},     {"c128", 16}};
  const auto found = kBytes.find(type);
  return found == kBytes.end() ? 0 : found->second;
}

std::string SealManifest(std::string_view body) {
  std::string text(kHead);
  text += HashHex(HashOf(body));
  text += kMiddle;
  text += body;
  text += kTail;
  return text;
}

std::string EncodeManifest(const Manifest& manifest) {
  Json arrays = Json::array();
  for (const ArrayEntry& array : manifest.arrays) {
    Json chunks = Json::array();
    for (const Chunk& chunk : array.chunks) {
      chunks.push_back({{"file", chunk.file}, {"bytes", chunk.bytes}, {"xxh3", HashHex(chunk.hash)}});
    }
    arrays.push_back(
        {{"name", array.name}, {"type", array.type}, {"bytes", array.bytes}, {"chunks", std::move(chunks)}});
  }
  Json body = {{"format", kFormat},
               {"step", manifest.step},
               {"model", manifest.model},
               {"meta", manifest.meta},
               {"arrays", std::move(arrays)}};
  if (!manifest.state.empty()) body["state"] = manifest.state;
  return SealManifest(DumpJson(body));
}

Result<Manifest> ParseManifest(std::string_view text) {
  const size_t frame = kHead.size() + kHashDigits + kMiddle.size() + kTail.size();
  if (text.empty()) return Error{Code::kCorrupt, "is empty"};
  if (text.size() < frame || !text.starts_with(kHead) || !text.ends_with(kTail) ||
      text.substr(kHead.size() + kHashDigits, kMiddle.size()) != kMiddle) {
    return Error{Code::kCorrupt, "is damaged or truncated"};
  }
  RM_ASSIGN(const uint64_t hash, ParseHash(std::string(text.substr(kHead.size(), kHashDigits))));
  const std::string_view body = text.substr(kHead.size() + kHashDigits + kMiddle.size(), text.size() - frame);
  if (HashOf(body) != hash) return Error{Code::kCorrupt, "is damaged: its checksum does not match"};
  RM_ASSIGN(const Json json, ParseJson(body));
  return ParseBody(json);
}

}  // namespace ringmaster::checkpoint
