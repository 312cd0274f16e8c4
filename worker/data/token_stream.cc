// SPDX-License-Identifier: Apache-2.0

#include "worker/data/token_stream.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "worker/data/folder.h"

namespace ringmaster::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr size_t kHeaderBytes = 256 * sizeof(int32_t);
constexpr int32_t kMagic16 = 20240520;  // llm.c, 16-bit tokens
constexpr int32_t kMagic32 = 20240801;  // llm.c, 32-bit tokens

int32_t HeaderField(std::span<const std::byte> bytes, size_t index) {
  int32_t value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

// Returns the tokens of a .bin file, without its header if it has one.
Result<std::span<const std::byte>> TokensOf(const FileView& file) {
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() >= sizeof(int32_t) && HeaderField(bytes, 0) == kMagic32) {
    return Problem(Code::kInvalid, file.path(), "has 32-bit tokens",
                   "write it with 16-bit tokens (magic 20240520)");
  }
  if (bytes.size() >= sizeof(int32_t) && HeaderField(bytes, 0) == kMagic16) {
    if (bytes.size() < kHeaderBytes) {
      return Problem(Code::kCorrupt, file.path(), "is truncated: it ends within the header",
                     "copy or create it again");
    }
    if (HeaderField(bytes, 1) != 1) {
      return Problem(Code::kInvalid, file.path(), fmt::format("has header version {}", HeaderField(bytes, 1)),
                     "write it in version 1");
    }
    const int64_t promised = HeaderField(bytes, 2);
    const auto have = static_cast<int64_t>((bytes.size() - kHeaderBytes) / 2);
    if (promised != have || (bytes.size() - kHeaderBytes) % 2 != 0) {
      return Problem(Code::kCorrupt, file.path(),
                     fmt::format("is {}: its header says {} tokens, it has {}",
                                 promised > have ? "truncated" : "damaged", promised, have),
                     "copy or create it again");
    }
    return bytes.subspan(kHeaderBytes);
  }
  if (bytes.size() % 2 != 0) {
    return Problem(Code::kCorrupt, file.path(), fmt::format("has an odd number of bytes ({})", bytes.size()),
                   "it is truncated, or not a file of 16-bit tokens");
  }
  return bytes;
}

// Rejects compressed or binary data, which would train without an error but to no purpose.
Status LooksLikeText(const FileView& file) {
  constexpr std::string_view kForms[] = {{"\x1f\x8b", 2},
                                         {"\xfd"
                                          "7zXZ",
                                          5},
                                         {"\x28\xb5\x2f\xfd", 4},
                                         {"BZh", 3},
                                         {"PK\x03\x04", 4}};
  const std::string_view head(reinterpret_cast<const char*>(file.bytes().data()),
                              std::min<size_t>(file.bytes().size(), 8192));
  for (const std::string_view form : kForms) {
    if (head.starts_with(form)) {
      return Problem(Code::kInvalid, file.path(), "is compressed, not text", "decompress it first");
    }
  }
  if (head.find('\0') != std::string_view::npos) {
    return Problem(Code::kInvalid, file.path(), "is not text: it contains zero bytes",
                   "give UTF-8 text, or use kind: tokens for a .bin file");
  }
  return Ok();
}

template <class T>
uint32_t Largest(std::span<const std::byte> bytes) {
  const auto* tokens = reinterpret_cast<const T*>(bytes.data());
  T top = 0;
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) top = std::max(top, tokens[i]);
  return top;
}

template <class T>
void Widen(const std::byte* from, std::span<int32_t> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    T value = 0;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    to[i] = value;
  }
}

}  // namespace

Status TokenStream::Append(FileView file, int vocabulary) {
  std::span<const std::byte> bytes = file.bytes();
  if (bytes.empty()) return Ok();
  if (kind_ == Kind::kText) {
    RM_TRY(LooksLikeText(file));
  } else {
    RM_ASSIGN(bytes, TokensOf(file));
  }
  const int64_t limit = kind_ == Kind::kText ? 256 : 65536;
  if (vocabulary < limit) {
    const uint32_t top = width_ == 1 ? Largest<uint8_t>(bytes) : Largest<uint16_t>(bytes);
    if (top >= static_cast<uint32_t>(vocabulary)) {
      return Problem(Code::kInvalid, file.path(),
                     fmt::format("has token {}, outside a vocabulary of {}", top, vocabulary),
                     fmt::format("set the vocabulary to at least {}", top + 1));
    }
  }
  segments_.push_back({std::move(file), bytes, size_});
  size_ += static_cast<int64_t>(bytes.size() / width_);
  return Ok();
}

Result<TokenStream> TokenStream::Open(Kind kind, const std::string& path, int vocabulary) {
  TokenStream stream;
  stream.kind_ = kind;
  stream.path_ = path;
  stream.width_ = kind == Kind::kText ? 1 : 2;
  RM_ASSIGN(const std::vector<std::string> files, FilesBelow(path, kind == Kind::kText ? "" : ".bin"));
  if (files.empty()) {
    return Problem(Code::kInvalid, path, kind == Kind::kText ? "has no files" : "has no .bin files",
                   "check the path and the data kind");
  }
  for (const std::string& name : files) {
    RM_ASSIGN(FileView file, FileView::Open(name));
    RM_TRY(stream.Append(std::move(file), vocabulary));
  }
  if (stream.size_ == 0) return Problem(Code::kInvalid, path, "is empty", "give a file with data");
  return stream;
}

void TokenStream::Copy(int64_t position, std::span<int32_t> out) const {
  CHECK(position >= 0 && position + static_cast<int64_t>(out.size()) <= size_, "tokens at {} of {}", position,
        size_);
  if (out.empty()) return;
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), position,
                                  [](int64_t at, const Segment& s) { return at < s.first; });
  --segment;
  while (!out.empty()) {
    const auto skip = static_cast<size_t>(position - segment->first);
    const size_t count = std::min(out.size(), segment->bytes.size() / width_ - skip);
    const std::byte* from = segment->bytes.data() + skip * width_;
    if (width_ == 1) {
      Widen<uint8_t>(from, out.first(count));
    } else {
      Widen<uint16_t>(from, out.first(count));
    }
    out = out.subspan(count);
    position += static_cast<int64_t>(count);
    ++segment;
  }
}

void TokenStream::AddTo(Fingerprint* fingerprint) const {
  for (const Segment& segment : segments_) {
    // Names are left out: members find the same content under other paths.
    fingerprint->Add("");
    fingerprint->AddSampled(segment.bytes);
  }
}

}  // namespace ringmaster::data
