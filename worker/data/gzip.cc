// SPDX-License-Identifier: Apache-2.0

#include "worker/data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

namespace ringmaster::data {

struct GzipReader::Stream {
  z_stream z{};
  bool initialised = false;
  bool ended = false;  // at the end of a gzip member
  std::span<const std::byte> rest;

  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (initialised) inflateEnd(&z);
  }
};

bool LooksLikeGzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

GzipReader::GzipReader(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
GzipReader::GzipReader(GzipReader&&) noexcept = default;
GzipReader& GzipReader::operator=(GzipReader&&) noexcept = default;
GzipReader::~GzipReader() = default;

Result<GzipReader> GzipReader::Create(std::span<const std::byte> compressed) {
  auto stream = std::make_unique<Stream>();
  if (inflateInit2(&stream->z, 15 + 16) != Z_OK) {  // 16: with a gzip header
    return Error{Code::kExhausted, "no memory to decompress"};
  }
  stream->initialised = true;
  stream->rest = compressed;
  return GzipReader(std::move(stream));
}

Result<size_t> GzipReader::Read(std::span<std::byte> out) {
  Stream& s = *stream_;
  constexpr size_t kMost = std::numeric_limits<uInt>::max() / 2;
  size_t done = 0;
  while (done < out.size()) {
    if (s.ended) {
      if (s.rest.empty()) return done;
      // Several members may follow each other (`cat a.gz b.gz`), but nothing else.
      if (!LooksLikeGzip(s.rest) || inflateReset(&s.z) != Z_OK) {
        return Error{Code::kCorrupt, "bytes that are not gzip follow the compressed data"};
      }
      s.ended = false;
    }
    const size_t give = std::min(s.rest.size(), kMost);
    const size_t room = std::min(out.size() - done, kMost);
    // zlib does not write through next_in, although its type is not const.
    s.z.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(s.rest.data()));
    s.z.avail_in = static_cast<uInt>(give);
    s.z.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    s.z.avail_out = static_cast<uInt>(room);
    const int code = inflate(&s.z, Z_NO_FLUSH);
    s.rest = s.rest.subspan(give - s.z.avail_in);
    done += room - s.z.avail_out;
    if (code == Z_STREAM_END) {
      s.ended = true;
    } else if (code == Z_MEM_ERROR) {
      return Error{Code::kExhausted, "no memory to decompress"};
    } else if (code == Z_BUF_ERROR) {
      return Error{Code::kCorrupt, "the compressed data is truncated"};
    } else if (code != Z_OK) {
      return Error{Code::kCorrupt, "the compressed data is damaged"};
    }
  }
  return done;
}

}  // namespace ringmaster::data
