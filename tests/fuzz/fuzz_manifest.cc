// SPDX-License-Identifier: Apache-2.0

// Fuzzes the manifest parser: no input may crash it, and an accepted manifest survives a round trip
// unchanged.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "worker/checkpoint/manifest.h"

namespace {

void Try(std::string_view text) {
  using ringmaster::checkpoint::EncodeManifest;
  using ringmaster::checkpoint::ParseManifest;
  const auto first = ParseManifest(text);
  if (!first.ok()) {
    CHECK(!first.error().message.empty());
    return;
  }
  for (const auto& array : first->arrays) {
    int64_t bytes = 0;
    for (const auto& chunk : array.chunks) {
      CHECK(chunk.file.find('/') == std::string::npos && chunk.bytes >= 1);
      bytes += chunk.bytes;
    }
    CHECK(bytes == array.bytes);
  }
  const std::string again = EncodeManifest(*first);
  const auto second = ParseManifest(again);
  CHECK(second.ok(), "{}", second.error().message);
  CHECK(EncodeManifest(*second) == again);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Try(text);
  Try(ringmaster::checkpoint::SealManifest(text));  // past the checksum
  return 0;
}
