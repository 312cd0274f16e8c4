// SPDX-License-Identifier: Apache-2.0

// Implements base/log.h for the agent's program: the same lines without the logging library, which would take
// most of its memory. It never blocks, because an agent must not wait for a reader of its log.
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>

#include "base/log.h"

namespace ringmaster::log {
namespace {

struct State {
  std::string name;
  Level threshold = Level::kInfo;
};

State& TheState() {
  static State state;
  return state;
}

Level Threshold(std::string_view wanted) {
  if (wanted == "debug" || wanted == "trace") return Level::kDebug;
  if (wanted == "warn" || wanted == "warning") return Level::kWarn;
  if (wanted == "error" || wanted == "err" || wanted == "off") return Level::kError;
  return Level::kInfo;
}

}  // namespace

void Init(const std::string& name) {
  const char* wanted = std::getenv("RINGMASTER_LOG");
  TheState() = {name + " ", Threshold(wanted == nullptr ? "" : wanted)};
}

bool Enabled(Level level) { return level >= TheState().threshold; }

void Write(Level level, std::string_view line) {
  if (!Enabled(level)) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - whole).count();
  const std::time_t when = whole.count();
  std::tm local = {};
  ::localtime_r(&when, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &local);
  const char letter = "DIWE"[static_cast<int>(level)];
  const std::string text = fmt::format("{}.{:03} {} {}{}\n", stamp, ms, letter, TheState().name, line);
  pollfd wait = {STDERR_FILENO, POLLOUT, 0};
  if (::poll(&wait, 1, 0) != 1) return;
  [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace ringmaster::log
