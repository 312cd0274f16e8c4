// SPDX-License-Identifier: Apache-2.0

// Writes the files that the tests read.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/temp_folder.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {

inline std::string Gzip(const std::string& bytes) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, static_cast<uLong>(bytes.size())) + 64, '\0');
  std::string in = bytes;
  z.next_in = reinterpret_cast<Bytef*>(in.data());
  z.avail_in = static_cast<uInt>(in.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

inline std::string Idx(const std::vector<uint32_t>& dims, const std::string& data) {
  std::string out{'\0', '\0', '\x08', static_cast<char>(dims.size())};
  for (const uint32_t d : dims) {
    for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(d >> shift & 0xff);
  }
  return out + data;
}

inline std::string Tokens16(const std::vector<uint16_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2};
}

// Returns the message of a failed Open; fails the test when it succeeds.
inline std::string WhyNot(const Config& config, Code code) {
  const auto opened = Dataset::Open(config);
  if (opened.ok()) {
    ADD_FAILURE() << "opened " << config.path;
    return {};
  }
  EXPECT_EQ(opened.error().code, code) << opened.error().message;
  return opened.error().message;
}

}  // namespace ringmaster::data
