// SPDX-License-Identifier: Apache-2.0

// Fuzzes the codec with a stream of frames and with one JSON body: no input may crash it, and an accepted
// message survives a round trip unchanged.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "rendezvous/codec.h"

namespace {

void MustSurvive(const ringmaster::rendezvous::Message& message) {
  using ringmaster::rendezvous::Decoder;
  using ringmaster::rendezvous::Encode;
  const std::string frame = Encode(message);
  Decoder decoder;
  decoder.Feed(frame);
  const auto again = decoder.Next();
  CHECK(again.ok() && again.value().has_value());
  // Compare bytes: a NaN is not equal to itself.
  CHECK(Encode(*again.value()) == frame);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto body = ringmaster::rendezvous::DecodeBody(bytes);
  if (body.ok()) MustSurvive(*body);
  ringmaster::rendezvous::Decoder decoder;
  // Feed pieces whose size depends on the input.
  const size_t piece = size > 0 ? 1 + data[0] % 61 : 1;
  for (size_t at = 0; at < size; at += piece) {
    decoder.Feed(bytes.substr(at, piece));
    for (;;) {
      const auto next = decoder.Next();
      if (!next.ok()) return 0;
      if (!next.value()) break;
      MustSurvive(*next.value());
    }
  }
  return 0;
}
