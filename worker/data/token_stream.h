// SPDX-License-Identifier: Apache-2.0

// TokenStream is the concatenation of the tokens of one or several files. Immutable after Open; thread-safe.
//
// Every token is below the vocabulary when it is used: Read checks each one that it returns. Open and Sample
// find most bad files earlier, without reading all of a large one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/work_counter.h"
#include "worker/data/content_hasher.h"
#include "worker/data/dataset.h"
#include "worker/data/file_pool.h"
#include "worker/data/fingerprint.h"

namespace ringmaster::data {

class TokenStream {
 public:
  // Opens `files`, which were found at `path`. kText: every byte is a token. kTokens: little-endian 16-bit
  // tokens, with or without the 256-number header of llm.c. Checks all tokens of the files that `pool` holds
  // in memory. `counter` counts files; it may be null. REQUIRES: `pool` outlives the stream.
  static Result<TokenStream> Open(FilePool* pool, Kind kind, const std::string& path,
                                  const std::vector<std::string>& files, int vocabulary,
                                  WorkCounter* counter);
  // The end of the names of this kind's files in a folder; empty: any.
  static std::string SuffixOf(Kind kind);

  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // Reads tokens [position, position + out.size()). Errors: kInvalid for a token outside the vocabulary; as
  // FilePool::View.
  Status Read(int64_t position, std::span<int32_t> out) const;
  // Asks the kernel to read these tokens soon.
  void Announce(int64_t position, int64_t count) const;
  // Adds sizes and sampled content to the fingerprint, and checks the sampled tokens. Errors: as Read.
  Status Sample(Fingerprint* fingerprint) const;
  // Adds sizes and the whole content. Errors: as ContentHasher::AddRange.
  Status Hash(ContentHasher* hasher) const;

 private:
  struct Segment {
    size_t file = 0;
    uint64_t offset = 0;  // of its first token in the file
    int64_t first = 0;    // position of its first token in the stream
    int64_t count = 0;
  };

  Status Append(size_t file);
  Result<std::span<const std::byte>> View(const Segment& segment, int64_t token, int64_t count,
                                          std::vector<std::byte>* buffer) const;
  // Checks that the tokens at `offset` in the file are in the vocabulary.
  Status Check(size_t file, uint64_t offset, std::span<const std::byte> tokens) const;
  // Calls visit(segment, first token within it, count) for every segment that the range touches.
  template <class Visit>
  Status ForEachPart(int64_t position, int64_t count, const Visit& visit) const;

  const FilePool* pool_ = nullptr;
  Kind kind_ = Kind::kText;
  std::string path_;
  int vocabulary_ = 0;
  std::vector<Segment> segments_;
  int64_t size_ = 0;
  size_t width_ = 1;  // bytes per token
};

}  // namespace ringmaster::data
