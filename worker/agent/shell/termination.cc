// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/termination.h"

#include <span>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "rendezvous/messages.h"

namespace ringmaster::agent {
namespace {

constexpr size_t kMaxBytes = 4000;  // Kubernetes keeps 4096
constexpr size_t kMostRead = size_t{1} << 20;

void Write(const std::string& path, const std::string& text) {
  if (WriteFileAtomic(path, text).ok()) return;
  // In a pod the file is a mount, which a rename cannot replace.
  const Status plain = WriteFileDurable(path, std::as_bytes(std::span(text.data(), text.size())));
  if (!plain.ok()) log::Warn("cannot write the termination message: {}", plain.error().message);
}

}  // namespace

void WriteTerminationLog(const std::string& path, const std::string& message, const std::string& tail) {
  if (path.empty()) return;
  std::string text = message.substr(0, kMaxBytes);
  if (!tail.empty() && text.size() + 1 < kMaxBytes && message.find(tail) == std::string::npos) {
    const size_t room = kMaxBytes - text.size() - 1;
    text += '\n';
    text += tail.size() <= room ? tail : tail.substr(tail.size() - room);  // the newest lines matter most
  }
  text += '\n';
  Write(path, text);
}

void WriteFinishedNote(const std::string& path) {
  if (path.empty()) return;
  std::string text;
  if (Result<std::string> before = ReadFile(path, kMostRead); before.ok()) text = std::move(before).value();
  while (text.ends_with('\n')) text.pop_back();
  if (text.ends_with(rendezvous::kFinishedNote)) return;  // of another slot
  if (!text.empty()) text += '\n';
  Write(path, text.append(rendezvous::kFinishedNote) + '\n');
}

}  // namespace ringmaster::agent
