// SPDX-License-Identifier: Apache-2.0

// Fuzzes what a program reports about its progress. No line may crash the agent, and the records that it
// sends on are such that the coordinator accepts them.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "rendezvous/codec.h"
#include "worker/agent/program/program_progress.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  agent::ProgramProgress progress;
  progress.Begin({});
  while (!text.empty()) {
    const size_t end = text.find('\n');
    progress.Take(text.substr(0, end), {});
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  const auto out = progress.Flush({});
  if (!out) return 0;
  for (const rendezvous::StepRecord& record : out->records) {
    CHECK(record.step >= 1 && record.samples >= 0 && out->total_steps >= 0);
    CHECK(std::isfinite(record.loss) && std::isfinite(record.learning_rate) &&
          std::isfinite(record.gradient_norm));
  }
  rendezvous::Decoder decoder;
  decoder.Feed(rendezvous::Encode(*out));
  const auto again = decoder.Next();
  CHECK(again.ok() && again.value().has_value());
  return 0;
}
