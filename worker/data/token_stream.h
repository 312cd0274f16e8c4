// SPDX-License-Identifier: Apache-2.0

// TokenStream is the concatenation of the tokens of one or several files. Immutable after Open; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/data/dataset.h"
#include "worker/data/file_view.h"
#include "worker/data/fingerprint.h"

namespace ringmaster::data {

class TokenStream {
 public:
  // kText: a file, or all files below a folder; every byte is a token. kTokens: a .bin file, or all of a
  // folder; little-endian 16-bit tokens, with or without the 256-number header of llm.c.
  static Result<TokenStream> Open(Kind kind, const std::string& path, int vocabulary);

  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // Copies tokens [position, position + out.size()).
  void Copy(int64_t position, std::span<int32_t> out) const;
  void AddTo(Fingerprint* fingerprint) const;

 private:
  struct Segment {
    FileView file;
    std::span<const std::byte> bytes;  // the part of the file with tokens
    int64_t first = 0;                 // position of its first token in the stream
  };

  Status Append(FileView file, int vocabulary);

  Kind kind_ = Kind::kText;
  std::string path_;
  std::vector<Segment> segments_;
  int64_t size_ = 0;
  size_t width_ = 1;  // bytes per token
};

}  // namespace ringmaster::data
