// SPDX-License-Identifier: Apache-2.0

#include "cli/launch/code_archive.h"

#include <fmt/format.h>
#include <openssl/sha.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/base64.h"
#include "base/check.h"

namespace ringmaster::cli::launch {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kNameBytes = 100;    // of a name in a header
constexpr size_t kHashDigits = 20;    // of the hash in the name
constexpr int kGzipWindow = 15 + 16;  // zlib writes the header of gzip, without a time

void Put(std::array<char, kBlock>& header, size_t at, std::string_view text) {
  std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
}

// A header of the format ustar, without owner and time: the same code always has the same bytes.
void AddHeader(std::string& tar, char type, std::string_view name, std::string_view link, size_t size,
               bool executable) {
  std::array<char, kBlock> header{};
  Put(header, 0, name.substr(0, kNameBytes));
  Put(header, 100, executable ? "0000755" : "0000644");
  Put(header, 108, "0000000");
  Put(header, 116, "0000000");
  Put(header, 124, fmt::format("{:011o}", size));
  Put(header, 136, "00000000000");
  Put(header, 148, "        ");  // the checksum counts itself as spaces
  header[156] = type;
  Put(header, 157, link.substr(0, kNameBytes));
  Put(header, 257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  Put(header, 148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  tar.append(header.data(), header.size());
}

void AddContent(std::string& tar, std::string_view content) {
  tar += content;
  tar.append((kBlock - content.size() % kBlock) % kBlock, '\0');
}

// A name that does not fit its header precedes it as an entry of GNU tar, which other tars read, too.
void AddLongName(std::string& tar, char type, const std::string& name) {
  if (name.size() <= kNameBytes) return;
  AddHeader(tar, type, "././@LongLink", "", name.size() + 1, false);
  AddContent(tar, std::string_view(name.c_str(), name.size() + 1));
}

std::string Tar(const CodeFolder& code) {
  std::string tar;
  for (const CodeFile& file : code.files) {
    AddLongName(tar, 'K', file.link);
    AddLongName(tar, 'L', file.path);
    AddHeader(tar, file.link.empty() ? '0' : '2', file.path, file.link, file.content.size(), file.executable);
    AddContent(tar, file.content);
  }
  tar.append(2 * kBlock, '\0');
  return tar;
}

std::string Gzip(std::string_view text) {
  z_stream stream{};
  CHECK(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<unsigned char*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string HexHash(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string LargestFiles(const CodeFolder& code) {
  std::vector<const CodeFile*> files;
  for (const CodeFile& file : code.files) files.push_back(&file);
  std::sort(files.begin(), files.end(),
            [](const CodeFile* a, const CodeFile* b) { return a->content.size() > b->content.size(); });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(files.size(), 3); ++i)
    text += fmt::format("{}{} ({} KiB)", i == 0 ? "" : ", ", files[i]->path, files[i]->content.size() >> 10);
  return text;
}

}  // namespace

Result<CodeArchive> PackCode(const CodeFolder& code) {
  CodeArchive archive;
  archive.bytes = Gzip(Tar(code));
  if (archive.bytes.size() > kMostArchiveBytes)
    return Error{Code::kInvalid,
                 fmt::format("the code has {} KiB compressed, and a job carries at most {} KiB; the largest "
                             "files are {}: list data in .gitignore, or build an image with the code and "
                             "pass --image and --no-code",
                             archive.bytes.size() >> 10, kMostArchiveBytes >> 10, LargestFiles(code))};
  archive.name = "ringmaster-code-" + HexHash(archive.bytes).substr(0, kHashDigits);
  return archive;
}

Json CodeConfigMap(const CodeArchive& archive) {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", {{"name", archive.name}, {"labels", {{kCodeLabel, "true"}}}}},
          {"immutable", true},
          {"binaryData", {{kArchiveKey, EncodeBase64(archive.bytes)}}}};
}

}  // namespace ringmaster::cli::launch
