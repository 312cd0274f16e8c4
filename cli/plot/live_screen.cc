// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/live_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli/plot/scale.h"
#include "cli/write_text.h"

namespace ringmaster::cli {
namespace {

constexpr int kGreen = 32, kYellow = 33, kRed = 31, kBlue = 34, kFaint = 2;

// A line that is built piece by piece within a number of columns.
class LineBuilder {
 public:
  LineBuilder(int columns, bool colour) : left_(columns), colour_(colour) {}
  LineBuilder& Add(std::string_view text, int colour = 0) {
    const std::string cut = CutToColumns(text, left_);
    left_ -= ColumnsOf(cut);
    line_ += colour_ && colour != 0 && !cut.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", colour, cut) : cut;
    return *this;
  }
  int left() const { return left_; }
  std::string Take() { return std::move(line_); }

 private:
  std::string line_;
  int left_;
  const bool colour_;
};

// A bar of `width` columns, in eighths of a character.
std::string BarText(double share, int width, bool unicode) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double cells = std::clamp(share, 0.0, 1.0) * width;
  auto full = static_cast<int>(cells);
  std::string bar;
  for (int i = 0; i < full; ++i) bar += unicode ? "█" : "#";
  if (unicode && full < width) {
    const char* part = kEighths[static_cast<int>((cells - full) * 8)];
    bar += part;
    if (*part != '\0') ++full;
  }
  return bar + std::string(static_cast<size_t>(width - full), unicode ? ' ' : '.');
}

std::string ProgressLine(const LiveScreen& screen, int columns, const TerminalTraits& traits) {
  LineBuilder line(columns, traits.colour);
  if (screen.total_steps == 0) {  // of a program that does not report it
    if (screen.step > 0)
      line.Add(fmt::format("step {}  {}", TickLabel(static_cast<double>(screen.step)), screen.numbers));
    return line.Take();
  }
  const double share = static_cast<double>(screen.step) / static_cast<double>(screen.total_steps);
  const std::string text =
      fmt::format(" {:3.0f} %  step {} of {}  {}", 100 * share, TickLabel(static_cast<double>(screen.step)),
                  TickLabel(static_cast<double>(screen.total_steps)), screen.numbers);
  const int room = std::min(40, columns - ColumnsOf(text) - 2);
  if (room >= 8)
    line.Add(traits.unicode ? "▕" : "[", kFaint)
        .Add(BarText(share, room, traits.unicode),
             screen.workers_alive < screen.workers_wanted ? kYellow : kGreen)
        .Add(traits.unicode ? "▏" : "]", kFaint);
  return line.Add(room >= 8 ? text : std::string_view(text).substr(1)).Take();
}

std::string WorkerLine(const LiveScreen::Worker& worker, int name_columns, int columns,
                       const TerminalTraits& traits) {
  LineBuilder line(columns, traits.colour);
  struct Look {
    int colour;
    const char* sign;
    const char* ascii;
  };
  static constexpr Look kLooks[] = {
      {kGreen, "●", "*"}, {kYellow, "◐", "~"}, {kYellow, "○", "o"}, {kRed, "✖", "x"}};  // by State
  const Look& look = kLooks[static_cast<size_t>(worker.state)];
  line.Add("  ").Add(traits.unicode ? look.sign : look.ascii, look.colour).Add(" ");
  const std::string name = CutToColumns(worker.name, name_columns);
  line.Add(name).Add(std::string(static_cast<size_t>(name_columns - ColumnsOf(name) + 2), ' '));
  return line.Add(worker.text).Take();
}

}  // namespace

void LiveScreen::ShowBusy(double seconds, bool slow, Worker* worker) {
  worker->text += fmt::format(", busy {:.{}f} ms per step", 1e3 * seconds, seconds < 0.1 ? 2 : 0);
  if (slow) worker->state = Worker::State::kSlow, worker->text += ", slow";
}

std::vector<std::string> DrawScreen(const LiveScreen& screen, const TerminalTraits& traits, int rows) {
  const int columns = std::max(1, traits.width - 1);
  std::vector<std::string> lines;
  LineBuilder title(columns, traits.colour);
  title.Add(screen.title, 1);
  title.Add(fmt::format("  {} of {} workers", screen.workers_alive, screen.workers_wanted),
            screen.workers_alive < screen.workers_wanted ? kYellow : 0);
  if (!screen.note.empty()) title.Add("  " + screen.note, kFaint);
  lines.push_back(title.Take());
  lines.push_back(ProgressLine(screen, columns, traits));
  if (!screen.loss.empty()) {
    LineBuilder loss(columns, traits.colour);
    loss.Add("loss " + screen.loss + "  ");
    loss.Add(Sparkline(screen.losses, std::min(60, loss.left()), traits.unicode), kBlue);
    lines.push_back(loss.Take());
  }
  const int room = rows - static_cast<int>(lines.size());
  if (room <= 0 || screen.workers.empty()) {
    lines.resize(std::min<size_t>(lines.size(), static_cast<size_t>(std::max(1, rows))));
    return lines;
  }
  int name_columns = 0;
  for (const auto& worker : screen.workers) name_columns = std::max(name_columns, ColumnsOf(worker.name));
  name_columns = std::min(name_columns, std::max(4, columns / 2));
  // Those with a problem come first when not all fit.
  std::vector<const LiveScreen::Worker*> shown;
  for (const auto& worker : screen.workers) shown.push_back(&worker);
  const bool all = static_cast<int>(shown.size()) <= room;
  if (!all)
    std::stable_partition(shown.begin(), shown.end(), [](const auto* worker) {
      return worker->state != LiveScreen::Worker::State::kMember;
    });
  const size_t count = all ? shown.size() : static_cast<size_t>(room - 1);
  for (size_t i = 0; i < count; ++i) lines.push_back(WorkerLine(*shown[i], name_columns, columns, traits));
  if (!all)
    lines.push_back(CutToColumns(fmt::format("  and {} more workers", shown.size() - count), columns));
  return lines;
}

void LossHistory::Add(double loss) {
  sum_ += loss;
  if (++count_ < stride_) return;
  values_.push_back(sum_ / static_cast<double>(count_));
  sum_ = 0;
  count_ = 0;
  if (values_.size() < kMax) return;
  for (size_t i = 0; i < kMax / 2; ++i) values_[i] = (values_[2 * i] + values_[2 * i + 1]) / 2;
  values_.resize(kMax / 2);
  stride_ *= 2;
}

void ScreenPainter::Clear() {
  if (drawn_ > 0) std::printf("\x1b[%zuA\r\x1b[J", drawn_);
  drawn_ = 0;
}

// Overwrites line by line instead of clearing first, so that nothing flickers.
void ScreenPainter::Paint(const std::vector<std::string>& lines) {
  if (drawn_ > 0) std::printf("\x1b[%zuA", drawn_);
  for (const std::string& line : lines) {
    std::string shown = TextFor(stdout, line);
    std::ranges::replace(shown, '\n', ' ');  // of a foreign text; the screen counts its lines
    std::printf("\r%s\x1b[K\n", shown.c_str());
  }
  if (lines.size() < drawn_) std::printf("\x1b[J");
  drawn_ = lines.size();
  std::fflush(stdout);
}

void ScreenPainter::Say(std::string_view line) {
  Clear();
  Print(stdout, "{}\n", line);
  std::fflush(stdout);
}

void ScreenPainter::Finish() {
  drawn_ = 0;
  std::fflush(stdout);
}

}  // namespace ringmaster::cli
