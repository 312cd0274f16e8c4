// SPDX-License-Identifier: Apache-2.0

#include "cli/run/program_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <system_error>
#include <vector>

namespace ringmaster::cli {
namespace {

constexpr int64_t kMostBytes = 1 << 20;  // that one call reads
constexpr std::string_view kLog = ".log";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

ProgramOutput::ProgramOutput(std::string folder) : folder_(std::move(folder)) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    const auto size = entry.file_size(error);
    if (name.ends_with(kLog) && !error)
      read_[name.substr(0, name.size() - kLog.size())] = static_cast<int64_t>(size);
  }
}

void ProgramOutput::Read(const std::function<void(std::string_view line)>& print, bool all) {
  if (pod_.empty()) return;
  int64_t& read = read_[pod_];
  std::ifstream file(folder_ + "/" + pod_ + std::string(kLog), std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(file.tellg());
  if (!file) return;
  if (size < read) read = 0;  // another file
  if (size == read) return;
  const int64_t begin = std::max(read, size - kMostBytes);
  std::string text(static_cast<size_t>(size - begin), '\0');
  file.seekg(begin);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (!all) text.resize(text.rfind('\n') + 1);
  std::vector<std::string> lines;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (!IsOwnLine(rest.substr(0, end))) lines.push_back(Shown(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (begin > read || lines.size() > kMostLines)
    print(fmt::format("... the lines before are in {}/{}{}", folder_, pod_, kLog));
  for (size_t i = lines.size() - std::min(lines.size(), kMostLines); i < lines.size(); ++i) print(lines[i]);
  read = begin + static_cast<int64_t>(text.size());
}

std::string Shown(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  if (const size_t carriage = line.rfind('\r'); carriage != line.npos) line.remove_prefix(carriage + 1);
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {  // a color
      i += 2;
      while (i < line.size() && (line[i] < '@' || line[i] > '~')) ++i;
    } else if (c == '\t') {
      text += "    ";
    } else if (static_cast<unsigned char>(c) >= 0x20 && c != '\x7f') {
      text += c;
    }
  }
  return text;
}

// 2026-11-29T00:24:42.102Z I agent ...
bool IsOwnLine(std::string_view line) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd.ddd";
  if (line.size() < kForm.size()) return false;
  for (size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] == 'd' ? !IsDigit(line[i]) : line[i] != kForm[i]) return false;
  }
  line.remove_prefix(kForm.size());
  if (line.starts_with('Z')) line.remove_prefix(1);
  return line.size() > 3 && line[0] == ' ' && line[2] == ' ' &&
         std::string_view("DIWE").find(line[1]) != line.npos;
}

}  // namespace ringmaster::cli
