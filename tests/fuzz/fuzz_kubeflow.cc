// SPDX-License-Identifier: Apache-2.0

// Fuzzes the agent's server for reports to Kubeflow Trainer, which every process of the host network reaches.
// The first byte of an input is the size of the parts in which the others arrive. No request may crash the
// agent, and the records that it sends on are such that the coordinator accepts them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "rendezvous/codec.h"
#include "worker/agent/kubeflow/kubeflow_status.h"
#include "worker/agent/net/http_request.h"
#include "worker/agent/program/program_progress.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  if (size == 0) return 0;
  const size_t part = std::max<size_t>(1, data[0]);
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  agent::HttpRequestReader reader;
  while (!text.empty()) {
    reader.Feed(text.substr(0, part));
    text.remove_prefix(std::min(part, text.size()));
    reader.TakeExpectation();
  }
  if (!reader.done()) return 0;
  const agent::KubeflowAnswer answer = agent::AnswerKubeflow(reader, "/status", "token");
  CHECK(answer.text.starts_with("HTTP/1.1 "));
  if (!answer.status) return 0;
  agent::ProgramProgress progress;
  progress.Begin({});
  progress.Take(*answer.status, {});
  const auto out = progress.Flush({});
  if (!out) return 0;
  rendezvous::Decoder decoder;
  decoder.Feed(rendezvous::Encode(*out));
  const auto again = decoder.Next();
  CHECK(again.ok() && again.value().has_value());
  return 0;
}
