// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

namespace ringmaster::cli {
namespace {

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string locale = value;
    std::ranges::transform(locale, locale.begin(), [](unsigned char c) { return std::tolower(c); });
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

bool StartsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

}  // namespace

bool IsScreen(int fd) {
  const char* const term = std::getenv("TERM");
  const std::string_view kind = term == nullptr ? "" : term;
  return ::isatty(fd) == 1 && !kind.empty() && kind != "dumb";
}

TerminalTraits StdoutTraits() {
  TerminalTraits traits;
  winsize size{};
  const char* columns = std::getenv("COLUMNS");
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0) traits.height = size.ws_row;
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    traits.width = size.ws_col;
  else if (const int asked = columns == nullptr ? 0 : std::atoi(columns); asked > 0)
    traits.width = std::min(asked, 1000);
  const char* no_colour = std::getenv("NO_COLOR");
  traits.screen = IsScreen(STDOUT_FILENO);
  traits.colour = traits.screen && (no_colour == nullptr || *no_colour == '\0');
  traits.unicode = LocaleIsUtf8();
  return traits;
}

std::string Sparkline(std::span<const double> values, int width, bool unicode) {
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kPlain[] = {"_", "_", ".", "-", "-", "=", "*", "#"};
  if (width <= 0 || values.empty()) return {};
  std::vector<double> cells;
  const size_t count = std::min(values.size(), static_cast<size_t>(width));
  for (size_t cell = 0; cell < count; ++cell) {
    double sum = 0;
    int finite = 0;
    const size_t end = (cell + 1) * values.size() / count;
    for (size_t i = cell * values.size() / count; i < end; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      ++finite;
    }
    cells.push_back(finite > 0 ? sum / finite : std::numeric_limits<double>::quiet_NaN());
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double value : cells) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  std::string line;
  for (const double value : cells) {
    if (!std::isfinite(value)) {
      line += ' ';
      continue;
    }
    const double share = high > low ? (value - low) / (high - low) : 0.5;
    const auto level = static_cast<size_t>(std::clamp(std::lround(share * 7), 0L, 7L));
    line += unicode ? kBars[level] : kPlain[level];
  }
  return line;
}

int ColumnsOf(std::string_view text) {
  int columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && !std::isalpha(static_cast<unsigned char>(text[i]))) ++i;
      continue;
    }
    columns += StartsCharacter(text[i]);
  }
  return columns;
}

std::string CutToColumns(std::string_view text, int width) {
  int columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (StartsCharacter(text[i]) && ++columns > width) return std::string(text.substr(0, i));
  }
  return std::string(text);
}

}  // namespace ringmaster::cli
