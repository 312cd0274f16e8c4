// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda/emulation/capture.h"

#include "base/check.h"

namespace ringmaster::cuda::emulation {
namespace {

thread_local constinit Recording* recording = nullptr;
thread_local constinit Stream recorded = nullptr;

}  // namespace

Recording::Recording(Stream stream) {
  CHECK(recording == nullptr && stream != nullptr, "a nested capture, or a null stream");
  recording = this;
  recorded = stream;
}
Recording::~Recording() {
  recording = nullptr;
  recorded = nullptr;
}

bool Records(Stream stream) { return recording != nullptr && recorded == stream; }
bool RecordsAny() { return recording != nullptr; }

void Keep(std::function<void()> work) {
  CHECK(recording != nullptr, "no capture is active");
  recording->work_.push_back(std::move(work));
}

}  // namespace ringmaster::cuda::emulation
