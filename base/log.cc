// SPDX-License-Identifier: Apache-2.0

#include "base/log.h"

#include <fmt/chrono.h>
#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

namespace ringmaster::log {
namespace {

spdlog::level::level_enum ToSpd(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// The process-wide logger. This function is the only user of spdlog's registry.
spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    // A plugin that a program loads has a second copy of this function: it uses the logger of the program.
    if (auto existing = spdlog::get("ringmaster")) return existing;
    auto created = spdlog::stderr_logger_mt("ringmaster");
    created->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %v");
    created->flush_on(spdlog::level::debug);
    const char* threshold = std::getenv("RINGMASTER_LOG");
    created->set_level(threshold == nullptr ? spdlog::level::info : spdlog::level::from_str(threshold));
    return created;
  }();
  return *logger;
}

// Appends a JSON string. Invalid UTF-8 passes through unchanged.
void AppendQuoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

// Returns the length of the key when `word` begins with key=, otherwise 0.
size_t KeyLength(std::string_view word) {
  size_t length = 0;
  while (length < word.size() && ((word[length] >= 'a' && word[length] <= 'z') || word[length] == '_'))
    ++length;
  return length < word.size() && word[length] == '=' ? length : 0;
}

class JsonFormatter final : public spdlog::formatter {
 public:
  explicit JsonFormatter(std::string name) : name_(std::move(name)) {}
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto time = std::chrono::time_point_cast<std::chrono::milliseconds>(message.time);
    const auto whole = std::chrono::floor<std::chrono::seconds>(time);
    std::string line =
        fmt::format("{{\"ts\":\"{:%Y-%m-%dT%H:%M:%S}.{:03}Z\",\"level\":", whole, (time - whole).count());
    const auto level = spdlog::level::to_string_view(message.level);
    AppendQuoted(line, {level.data(), level.size()});
    line += ",\"logger\":";
    AppendQuoted(line, name_);
    line += ToJsonMembers({message.payload.data(), message.payload.size()});
    line += "}\n";
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(name_); }

 private:
  const std::string name_;
};

// A terminal obeys control characters in what programs printed, which errors quote.
std::string WithoutControls(std::string_view line) {
  std::string plain;
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f)
      plain += fmt::format("\\x{:02x}", byte);
    else
      plain += c;
  }
  return plain;
}

}  // namespace

std::string ToJsonMembers(std::string_view line) {
  std::string members;
  while (!line.empty()) {
    const size_t key = KeyLength(line);
    if (key == 0) break;
    // The value ends at the next space.
    size_t end = line.find(' ');
    while (end != std::string_view::npos && KeyLength(line.substr(end + 1)) == 0) {
      // Only an error's text contains spaces; it ends at the next key=value. After any other key, words
      // without a key belong to the message.
      if (line.substr(0, key) != "error") break;
      end = line.find(' ', end + 1);
    }
    members += ',';
    AppendQuoted(members, line.substr(0, key));
    members += ':';
    AppendQuoted(members, line.substr(key + 1, end == std::string_view::npos ? end : end - key - 1));
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  }
  if (!line.empty()) {
    members += ",\"msg\":";
    AppendQuoted(members, line);
  }
  return members;
}

void Init(const std::string& name) { Logger().set_pattern("%Y-%m-%dT%H:%M:%S.%e %L " + name + " %v"); }
void InitJson(const std::string& name) { Logger().set_formatter(std::make_unique<JsonFormatter>(name)); }

void Write(Level level, std::string_view line) {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const std::string plain = terminal ? WithoutControls(line) : std::string(line);
  Logger().log(ToSpd(level), spdlog::string_view_t(plain.data(), plain.size()));
}

bool Enabled(Level level) { return Logger().should_log(ToSpd(level)); }

}  // namespace ringmaster::log
