// SPDX-License-Identifier: Apache-2.0

#include "cli/ui/log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string_view>

#include "base/fd.h"
#include "base/file.h"
#include "base/open_file.h"

namespace ringmaster::cli {
namespace {

constexpr size_t kBlock = 64 << 10;
constexpr std::string_view kTimeForm = "0000-00-00T00:00:00.000";
constexpr size_t kHeadBytes = kTimeForm.size() + 3;  // a time, a space, a letter and a space

bool IsTime(std::string_view text) {
  if (text.size() != kTimeForm.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kTimeForm[i] == '0' ? !digit : text[i] != kTimeForm[i]) return false;
  }
  return true;
}

// Returns the time at the head of a line of a log; empty when it has none.
std::string_view TimeOf(std::string_view line) {
  if (line.size() < kHeadBytes) return {};
  const std::string_view head = line.substr(kTimeForm.size(), 3);
  if (head[0] != ' ' || head[1] < 'A' || head[1] > 'Z' || head[2] != ' ') return {};
  const std::string_view time = line.substr(0, kTimeForm.size());
  return IsTime(time) ? time : std::string_view();
}

// Returns a time in UTC as the lines of a log have it.
Result<std::string> LocalTime(const std::string& time) {
  std::tm parts{};
  const bool formed = time.ends_with('Z') && IsTime(std::string_view(time).substr(0, time.size() - 1)) &&
                      ::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) != nullptr;
  if (!formed) return Error{Code::kInvalid, fmt::format("a time of a log has a form like {}Z", kTimeForm)};
  const std::time_t seconds = ::timegm(&parts);
  ::localtime_r(&seconds, &parts);
  std::string text(kTimeForm.size(), '\0');
  text.resize(std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts));
  return text + time.substr(text.size(), 4);
}

struct LogFile {
  Fd fd;
  uint64_t size = 0;
};

Result<LogFile> OpenLog(const std::string& path) {
  LogFile log{OpenFile(path, O_RDONLY | O_NOFOLLOW)};
  if (!log.fd.valid()) return ErrnoError("open " + path, errno);
  struct stat status {};
  if (::fstat(log.fd.get(), &status) != 0) return ErrnoError("stat " + path, errno);
  log.size = static_cast<uint64_t>(std::max<off_t>(0, status.st_size));
  return log;
}

// Reads up to `bytes` bytes at `offset`; fewer at the end of the file or on an error.
std::string ReadAt(const LogFile& log, uint64_t offset, size_t bytes) {
  std::string text(bytes, '\0');
  const ssize_t n = ::pread(log.fd.get(), text.data(), text.size(), static_cast<off_t>(offset));
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, n)));
  return text;
}

std::string EndAt(const LogFile& log, uint64_t end, size_t bytes) {
  const auto size = static_cast<size_t>(std::min<uint64_t>(end, bytes));
  return ReadAt(log, end - size, size);
}

struct TimedLine {
  uint64_t offset = 0;
  std::string time;
};

// Returns the first line that begins in [from, to) and has a time.
std::optional<TimedLine> FirstTimedLine(const LogFile& log, uint64_t from, uint64_t to) {
  uint64_t offset = from == 0 ? 0 : from - 1;  // a line begins after a newline
  bool at_line = from == 0;
  while (offset < to) {
    const std::string block = ReadAt(log, offset, kBlock);
    const std::string_view text(block);
    size_t i = 0;
    while (true) {
      if (!at_line) {
        const size_t newline = text.find('\n', i);
        at_line = newline != std::string_view::npos;
        i = at_line ? newline + 1 : text.size();
        if (!at_line) break;
      }
      if (offset + i >= to) return std::nullopt;
      if (text.size() - i < kHeadBytes) break;  // the next block has all of it
      if (const std::string_view time = TimeOf(text.substr(i)); !time.empty())
        return TimedLine{offset + i, std::string(time)};
      at_line = false;
    }
    if (text.size() < kBlock) return std::nullopt;  // the end of the file
    offset += i;
  }
  return std::nullopt;
}

}  // namespace

Result<std::string> EndOfLog(const std::string& path, size_t bytes) {
  RM_ASSIGN(const LogFile log, OpenLog(path));
  return EndAt(log, log.size, bytes);
}

Result<std::string> LogUntil(const std::string& path, const std::string& time, size_t bytes) {
  RM_ASSIGN(const std::string until, LocalTime(time));
  RM_ASSIGN(const LogFile log, OpenLog(path));
  // Finds the first line after `until` by bisection. Lines with a time are almost in order: those of the
  // agent and the trainer may be some milliseconds apart.
  uint64_t end = log.size;
  for (uint64_t from = 0, to = log.size; from < to;) {
    const uint64_t middle = from + (to - from) / 2;
    const auto line = FirstTimedLine(log, middle, to);
    if (line && line->time <= until) {
      from = line->offset + 1;
      continue;
    }
    if (line) end = line->offset;
    to = middle;
  }
  return EndAt(log, end, bytes);
}

}  // namespace ringmaster::cli
