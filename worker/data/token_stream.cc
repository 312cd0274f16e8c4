// SPDX-License-Identifier: Apache-2.0

#include "worker/data/token_stream.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "worker/data/problem.h"

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

struct Tokens {
  uint64_t offset = 0;  // of the first one in the file
  int64_t count = 0;
};

// Rejects numbers of 32 or 64 bits and arrays of NumPy. Read as 16-bit tokens, every second one would be a
// zero, or all but one of four.
Status CheckWidth(const std::string& path, std::span<const std::byte> start) {
  constexpr std::string_view kNumpy = "\x93NUMPY";
  constexpr size_t kFewest = 16;  // numbers of 64 bits that are enough to judge
  const std::string_view head(reinterpret_cast<const char*>(start.data()), start.size());
  if (head.starts_with(kNumpy))
    return Problem(Code::kInvalid, path, "is an array of NumPy, not a file of tokens",
                   "write the numbers alone: array.astype(numpy.uint16).tofile(path)");
  const size_t groups = start.size() / 8;
  if (groups < kFewest) return Ok();
  size_t zeros[4] = {};
  size_t large = 0;  // second halves above 1: no number of a vocabulary below 131072 has them
  for (size_t i = 0; i < groups * 4; ++i) {
    uint16_t value = 0;
    std::memcpy(&value, start.data() + 2 * i, sizeof value);
    if (value == 0) ++zeros[i % 4];
    if (i % 2 == 1 && value > 1) ++large;
  }
  const auto mostly = [&](size_t count) { return 2 * count >= groups; };
  const auto rarely = [&](size_t count) { return 4 * count <= groups; };
  if (!rarely(zeros[0]) || !mostly(zeros[1]) || !mostly(zeros[3]) || large > 0) return Ok();
  return Problem(
      Code::kInvalid, path,
      fmt::format("looks like numbers of {} bits: every second 16 bits are zero", mostly(zeros[2]) ? 64 : 32),
      "write 16-bit tokens: numpy.array(tokens, dtype=numpy.uint16).tofile(path)");
}

// Returns where the tokens of a .bin file are: behind its header, if it has one.
Result<Tokens> TokensOf(const std::string& path, std::span<const std::byte> start, uint64_t bytes) {
  if (start.size() >= sizeof(int32_t) && HeaderField(start, 0) == kMagic32) {
    return Problem(Code::kInvalid, path, "has 32-bit tokens", "write it with 16-bit tokens (magic 20240520)");
  }
  if (start.size() >= sizeof(int32_t) && HeaderField(start, 0) == kMagic16) {
    if (start.size() < kHeaderBytes) {
      return Problem(Code::kCorrupt, path, "is truncated: it ends within the header",
                     "copy or create it again");
    }
    if (HeaderField(start, 1) != 1) {
      return Problem(Code::kInvalid, path, fmt::format("has header version {}", HeaderField(start, 1)),
                     "write it in version 1");
    }
    const int64_t promised = HeaderField(start, 2);
    const auto have = static_cast<int64_t>((bytes - kHeaderBytes) / 2);
    if (promised != have || (bytes - kHeaderBytes) % 2 != 0) {
      return Problem(Code::kCorrupt, path,
                     fmt::format("is {}: its header says {} tokens, it has {}",
                                 promised > have ? "truncated" : "damaged", promised, have),
                     "copy or create it again");
    }
    return Tokens{kHeaderBytes, have};
  }
  RM_TRY(CheckWidth(path, start));
  if (bytes % 2 != 0) {
    return Problem(Code::kCorrupt, path, fmt::format("has an odd number of bytes ({})", bytes),
                   "it is truncated, or not a file of 16-bit tokens");
  }
  return Tokens{0, static_cast<int64_t>(bytes / 2)};
}

// Rejects compressed or binary data, which would train without an error but to no purpose.
Status LooksLikeText(const std::string& path, std::span<const std::byte> start) {
  constexpr std::string_view kForms[] = {{"\x1f\x8b", 2},
                                         {"\xfd"
                                          "7zXZ",
                                          5},
                                         {"\x28\xb5\x2f\xfd", 4},
                                         {"BZh", 3},
                                         {"PK\x03\x04", 4}};
  const std::string_view head(reinterpret_cast<const char*>(start.data()), start.size());
  for (const std::string_view form : kForms) {
    if (head.starts_with(form)) {
      return Problem(Code::kInvalid, path, "is compressed, not text", "decompress it first");
    }
  }
  if (head.find('\0') != std::string_view::npos) {
    return Problem(Code::kInvalid, path, "is not text: it contains zero bytes",
                   "give UTF-8 text, or use kind: tokens for a .bin file");
  }
  return Ok();
}

// Returns the index of the largest token. REQUIRES: there is one.
template <class T>
size_t Largest(std::span<const std::byte> bytes) {
  const auto at = [&](size_t i) {
    T value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  };
  const size_t count = bytes.size() / sizeof(T);
  T top = 0;
  for (size_t i = 0; i < count; ++i) top = std::max(top, at(i));
  size_t index = 0;
  while (at(index) != top) ++index;
  return index;
}

template <class T>
int32_t Widen(std::span<const std::byte> from, std::span<int32_t> to) {
  int32_t top = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    T value = 0;
    std::memcpy(&value, from.data() + i * sizeof(T), sizeof(T));
    to[i] = value;
    top = std::max(top, to[i]);
  }
  return top;
}

}  // namespace

Status TokenStream::Append(size_t file) {
  const uint64_t bytes = pool_->size(file);
  if (bytes == 0) return Ok();
  constexpr uint64_t kStart = 8192;
  std::vector<std::byte> buffer;
  RM_ASSIGN(const std::span<const std::byte> start,
            pool_->View(file, 0, static_cast<size_t>(std::min(bytes, kStart)), &buffer));
  Tokens tokens{0, static_cast<int64_t>(bytes)};
  if (kind_ == Kind::kText) {
    RM_TRY(LooksLikeText(pool_->path(file), start));
  } else {
    RM_ASSIGN(tokens, TokensOf(pool_->path(file), start, bytes));
  }
  segments_.push_back({file, tokens.offset, size_, tokens.count});
  size_ += tokens.count;
  if (!pool_->held(file)) return Ok();
  RM_ASSIGN(const std::span<const std::byte> all, View(segments_.back(), 0, tokens.count, &buffer));
  return Check(file, tokens.offset, all);
}

std::string TokenStream::SuffixOf(Kind kind) { return kind == Kind::kText ? "" : ".bin"; }

Result<TokenStream> TokenStream::Open(FilePool* pool, Kind kind, const std::string& path,
                                      const std::vector<std::string>& files, int vocabulary,
                                      WorkCounter* counter) {
  TokenStream stream;
  stream.pool_ = pool;
  stream.kind_ = kind;
  stream.path_ = files.size() == 1 ? files.front() : path;
  stream.vocabulary_ = vocabulary;
  stream.width_ = kind == Kind::kText ? 1 : 2;
  if (files.empty()) {
    return Problem(Code::kInvalid, path, kind == Kind::kText ? "has no files" : "has no .bin files",
                   "check the path and the data kind");
  }
  if (counter != nullptr) counter->Begin(static_cast<int64_t>(files.size()));
  for (const std::string& name : files) {
    RM_ASSIGN(const size_t file, pool->Add(name));
    RM_TRY(stream.Append(file));
    if (counter != nullptr) counter->Add(1);
  }
  if (stream.size_ == 0) return Problem(Code::kInvalid, path, "is empty", "give a file with data");
  return stream;
}

template <class Visit>
Status TokenStream::ForEachPart(int64_t position, int64_t count, const Visit& visit) const {
  CHECK(position >= 0 && count >= 0 && count <= size_ - position, "{} tokens at {} of {}", count, position,
        size_);
  if (count == 0) return Ok();
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), position,
                                  [](int64_t at, const Segment& s) { return at < s.first; });
  --segment;
  while (count > 0) {
    const int64_t token = position - segment->first;
    const int64_t part = std::min(count, segment->count - token);
    RM_TRY(visit(*segment, token, part));
    position += part;
    count -= part;
    ++segment;
  }
  return Ok();
}

Result<std::span<const std::byte>> TokenStream::View(const Segment& segment, int64_t token, int64_t count,
                                                     std::vector<std::byte>* buffer) const {
  return pool_->View(segment.file, segment.offset + static_cast<uint64_t>(token) * width_,
                     static_cast<size_t>(count) * width_, buffer);
}

Status TokenStream::Read(int64_t position, std::span<int32_t> out) const {
  std::vector<std::byte> buffer;
  return ForEachPart(
      position, static_cast<int64_t>(out.size()),
      [&](const Segment& segment, int64_t token, int64_t count) -> Status {
        RM_ASSIGN(const std::span<const std::byte> bytes, View(segment, token, count, &buffer));
        const std::span<int32_t> to = out.first(static_cast<size_t>(count));
        out = out.subspan(to.size());
        const int32_t top = width_ == 1 ? Widen<uint8_t>(bytes, to) : Widen<uint16_t>(bytes, to);
        if (top < vocabulary_) return Ok();
        return Check(segment.file, segment.offset + static_cast<uint64_t>(token) * width_, bytes);
      });
}

void TokenStream::Announce(int64_t position, int64_t count) const {
  const Status announced =
      ForEachPart(position, count, [&](const Segment& segment, int64_t token, int64_t part) -> Status {
        pool_->Announce(segment.file, segment.offset + static_cast<uint64_t>(token) * width_,
                        static_cast<uint64_t>(part) * width_);
        return Ok();
      });
  CHECK(announced.ok());
}

Status TokenStream::Check(size_t file, uint64_t offset, std::span<const std::byte> tokens) const {
  if (tokens.empty() || vocabulary_ >= (width_ == 1 ? 256 : 65536)) return Ok();
  const size_t index = width_ == 1 ? Largest<uint8_t>(tokens) : Largest<uint16_t>(tokens);
  uint16_t value = 0;
  std::memcpy(&value, tokens.data() + index * width_, width_);
  if (value < vocabulary_) return Ok();
  return Problem(Code::kInvalid, pool_->path(file),
                 fmt::format("has token {} at offset {}, outside a vocabulary of {}", value,
                             offset + index * width_, vocabulary_),
                 fmt::format("set the vocabulary to at least {}", value + 1));
}

Status TokenStream::Sample(Fingerprint* fingerprint) const {
  std::vector<std::byte> buffer;
  for (const Segment& segment : segments_) {
    const uint64_t bytes = static_cast<uint64_t>(segment.count) * width_;
    // Names are left out: members find the same content under other paths.
    fingerprint->Add("");
    fingerprint->Add(static_cast<int64_t>(bytes));
    for (const Piece& piece : SamplePieces(bytes)) {
      RM_ASSIGN(const std::span<const std::byte> view,
                pool_->View(segment.file, segment.offset + piece.offset, piece.bytes, &buffer));
      fingerprint->Add(view);
      const size_t skip = piece.offset % width_;  // up to the first whole token
      RM_TRY(Check(segment.file, segment.offset + piece.offset + skip,
                   view.subspan(std::min(skip, view.size()))));
    }
  }
  return Ok();
}

Status TokenStream::Hash(ContentHasher* hasher) const {
  for (const Segment& segment : segments_) {
    const uint64_t bytes = static_cast<uint64_t>(segment.count) * width_;
    RM_TRY(hasher->AddRange(segment.file, segment.offset, bytes));
  }
  return Ok();
}

}  // namespace ringmaster::data
