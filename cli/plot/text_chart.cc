// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/text_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/plot/scale.h"

namespace ringmaster::cli {
namespace {

using MarkKind = GangTimeline::MarkKind;

constexpr int kRows = 12;
constexpr int kColours[] = {34, 33, 32, 35, 36, 31};
constexpr char kPlainDots[] = {'*', 'o', '+', 'x', '#', '@'};

std::string InColour(const std::string& text, int colour, const TerminalTraits& traits) {
  return traits.colour && colour != 0 ? fmt::format("\x1b[{}m{}\x1b[0m", colour, text) : text;
}

// A grid of 2 x 4 dots per character.
class Dots {
 public:
  Dots(int columns, int rows) : columns_(columns), cells_(static_cast<size_t>(columns * rows)), rows_(rows) {}
  int width() const { return 2 * columns_; }
  int height() const { return 4 * rows_; }

  void Set(int x, int y, int run) {
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    static constexpr uint8_t kBit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    Cell& cell = cells_[static_cast<size_t>(y / 4 * columns_ + x / 2)];
    cell.dots |= kBit[y % 4][x % 2];
    cell.run = run;
  }
  std::string Row(int row, const TerminalTraits& traits) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[static_cast<size_t>(row * columns_ + column)];
      const auto run = static_cast<size_t>(cell.run);
      if (cell.dots == 0)
        text += ' ';
      else if (traits.unicode)
        text += InColour(Braille(cell.dots), kColours[run % std::size(kColours)], traits);
      else
        text += InColour(std::string(1, kPlainDots[run % std::size(kPlainDots)]),
                         kColours[run % std::size(kColours)], traits);
    }
    return text;
  }

 private:
  struct Cell {
    uint8_t dots = 0;
    int run = 0;  // that was drawn last
  };
  static std::string Braille(uint8_t dots) {  // U+2800 + dots
    return {static_cast<char>(0xe2), static_cast<char>(0xa0 | dots >> 6),
            static_cast<char>(0x80 | (dots & 0x3f))};
  }

  const int columns_;
  std::vector<Cell> cells_;
  const int rows_;
};

void Vertical(Dots& dots, int x, int from, int to, int run) {
  for (int y = std::min(from, to); y <= std::max(from, to); ++y) dots.Set(x, y, run);
}

std::string LossText(const std::vector<RecordedRun>& runs, int width, const TerminalTraits& traits) {
  std::vector<const std::vector<rendezvous::StepRecord>*> curves;
  int64_t first = 0, last = 0;
  for (const RecordedRun& run : runs) {
    curves.push_back(&run.steps);
    if (run.steps.empty()) continue;
    first = first == 0 ? run.steps.front().step : std::min(first, run.steps.front().step);
    last = std::max(last, run.steps.back().step);
  }
  std::string text;
  for (size_t i = 0; i < runs.size(); ++i) {
    std::string line = "loss  " + runs[i].name;
    if (runs[i].steps.empty())
      line += ": no step has been committed yet";
    else if (const double loss = runs[i].steps.back().loss; std::isfinite(loss))
      line += fmt::format(": {:.4f} at step {}", loss, runs[i].steps.back().step);
    else
      line += fmt::format(": not a number at step {}", runs[i].steps.back().step);
    line = CutToColumns(line, width);
    if (!traits.unicode && runs.size() > 1) line[4] = kPlainDots[i % std::size(kPlainDots)];
    text += InColour(line, runs.size() > 1 ? kColours[i % std::size(kColours)] : 0, traits) + "\n";
  }
  if (const std::string equal = EqualLossesText(runs); !equal.empty())
    text += CutToColumns(equal, width) + "\n";
  if (last == 0) return text;
  const Range range = LossRange(curves);
  constexpr int kLabel = 9;
  Dots dots(width - kLabel, kRows);
  const auto y_of = [&](double loss) {
    const double share = (loss - range.low) / (range.high - range.low);
    return static_cast<int>(std::lround((1 - share) * (dots.height() - 1)));
  };
  const double steps = static_cast<double>(std::max<int64_t>(1, last - first));
  for (size_t i = 0; i < runs.size(); ++i) {
    int before_x = -1, before_y = 0;
    for (const Column& column : Downsample(runs[i].steps, first, last, dots.width())) {
      if (std::isnan(column.first)) {
        before_x = -1;
        continue;
      }
      const int x = static_cast<int>(
          std::lround(static_cast<double>(column.first_step - first) / steps * (dots.width() - 1)));
      const int run = static_cast<int>(i);
      if (before_x >= 0) {
        for (int between = before_x + 1; between < x; ++between)
          dots.Set(between,
                   before_y + (y_of(column.first) - before_y) * (between - before_x) / (x - before_x), run);
      }
      Vertical(dots, x, y_of(column.low), y_of(column.high), run);
      before_x = x;
      before_y = y_of(column.last);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    std::string label;
    if (row % 4 == 0 || row == kRows - 1) {
      const double loss = range.high - (range.high - range.low) * row / (kRows - 1);
      label = fmt::format("{:.4g}", loss);
    }
    text += fmt::format("{:>{}} {}", label, kLabel - 2, traits.unicode ? "" : "") +
            InColour(traits.unicode ? "\u2502" : "|", 2, traits) + dots.Row(row, traits) + "\n";
  }
  const std::string begin = fmt::format("{:>{}}step {}", "", kLabel, TickLabel(static_cast<double>(first)));
  const std::string end = TickLabel(static_cast<double>(last));
  const int gap = std::max(1, width - static_cast<int>(begin.size() + end.size()));
  return text + begin + std::string(static_cast<size_t>(gap), ' ') + end + "\n";
}

struct Symbol {
  const char* unicode = " ";
  char plain = ' ';
  int colour = 0;
};

Symbol SymbolOf(MarkKind kind) {
  switch (kind) {
    case MarkKind::kStruck:
    case MarkKind::kFailed:
    case MarkKind::kHung:
      return {"\u2716", 'X', 31};
    case MarkKind::kOperation:
    case MarkKind::kStopped:
    case MarkKind::kSilent:
    case MarkKind::kDevice:
    case MarkKind::kSlow:
      return {"\u25c6", '?', 33};
    case MarkKind::kLeaving:
      return {"\u25bc", 'v', 35};
    case MarkKind::kJoined:
      return {"\u25b2", '^', 32};
  }
  return {};
}

std::string LaneText(const GangTimeline::Lane& lane, double end, int columns, const TerminalTraits& traits) {
  std::vector<Symbol> cells(static_cast<size_t>(columns));
  const auto cell_of = [&](double at) {
    return static_cast<size_t>(std::clamp(static_cast<int>(at / end * columns), 0, columns - 1));
  };
  for (const auto& span : lane.spans)
    for (size_t i = cell_of(span.begin); i <= cell_of(span.end); ++i) cells[i] = {"\u2501", '-', 34};
  // A join must not hide the failure before it.
  for (const bool failures : {false, true}) {
    for (const auto& mark : lane.marks) {
      const bool failed = mark.kind != MarkKind::kJoined;
      if (failed == failures) cells[cell_of(mark.at)] = SymbolOf(mark.kind);
    }
  }
  std::string text;
  for (const Symbol& symbol : cells)
    text += InColour(traits.unicode ? symbol.unicode : std::string(1, symbol.plain), symbol.colour, traits);
  return text;
}

std::string GangChart(const RecordedRun& run, bool named, int width, const TerminalTraits& traits) {
  const GangTimeline& timeline = run.timeline;
  std::string title = named ? "workers of " + run.name + ": " : "workers: ";
  std::string text = CutToColumns(title + GangText(timeline), width) + "\n";
  int label = 4;
  for (const auto& lane : timeline.lanes) label = std::max(label, static_cast<int>(lane.pod.size()));
  label = std::min(label, width / 3);
  const int columns = width - label - 3;
  for (const auto& lane : timeline.lanes)
    text += fmt::format("  {:<{}} ", CutToColumns(lane.pod, label), label) +
            LaneText(lane, std::max(timeline.end, 1e-3), columns, traits) + "\n";
  const std::string end = TimeLabel(timeline.end);
  const int gap = std::max(1, columns - 1 - static_cast<int>(end.size()));
  return text + fmt::format("  {:<{}} 0{}{}\n", "", label, std::string(static_cast<size_t>(gap), ' '), end);
}

}  // namespace

std::string TextChart(const std::vector<RecordedRun>& runs, ChartPart part, const TerminalTraits& traits) {
  const int width = std::max(40, traits.width) - (traits.width > 40 ? 1 : 0);
  std::string text;
  if (part != ChartPart::kGang) text += LossText(runs, width, traits);
  if (part == ChartPart::kLoss) return text;
  for (const RecordedRun& run : runs) {
    if (run.timeline.lanes.empty()) continue;
    if (!text.empty()) text += "\n";
    text += GangChart(run, runs.size() > 1, width, traits);
  }
  return text;
}

}  // namespace ringmaster::cli
