// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "cli/plot/scale.h"

namespace ringmaster::cli {
namespace {

using MarkKind = GangTimeline::MarkKind;

constexpr double kWidth = 960;
constexpr double kLeft = 120;  // of the plotting area: room for the names of workers
constexpr double kRight = 936;
constexpr double kLossHeight = 300;
constexpr double kLaneHeight = 22;
constexpr double kBarHeight = 14;
constexpr size_t kMaxLanes = 64;

Ink InkOfRun(size_t run) {
  return static_cast<Ink>(static_cast<size_t>(Ink::kRun1) + run % static_cast<size_t>(kRunInks));
}

// Maps values to pixels.
struct Axis {
  double low = 0, high = 1;
  double from = 0, to = 1;
  bool log = false;
  double operator()(double value) const {
    const double share = log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from + share * (to - from);
  }
};

void Write(Picture& picture, Point at, std::string text, Ink ink, double size,
           Words::Anchor anchor = Words::Anchor::kStart, bool bold = false) {
  picture.shapes.push_back(Words{at, std::move(text), ink, size, anchor, bold});
}

void Draw(Picture& picture, std::vector<Point> points, Ink ink, double width, double opacity = 1) {
  picture.shapes.push_back(Stroke{std::move(points), ink, width, opacity});
}

// A curve has gaps where the loss is not a number.
void DrawCurve(Picture& picture, const std::vector<Column>& columns, const Axis& x, const Axis& y, Ink ink,
               double width) {
  std::vector<Point> points;
  const auto finish = [&] {
    if (points.size() == 1) {
      const Point at = points.front();
      picture.shapes.push_back(Box(at.x - 2.5, at.y - 2.5, 5, 5, ink));
    } else if (points.size() > 1) {
      Draw(picture, points, ink, width);
    }
    points.clear();
  };
  for (const Column& column : columns) {
    if (std::isnan(column.first)) {
      finish();
      continue;
    }
    const double at = x(static_cast<double>(column.first_step));
    points.push_back({at, y(column.first)});
    if (column.low < std::min(column.first, column.last)) points.push_back({at, y(column.low)});
    if (column.high > std::max(column.first, column.last)) points.push_back({at, y(column.high)});
    if (column.last != column.first) points.push_back({at, y(column.last)});
  }
  finish();
}

void DrawValidation(Picture& picture, const RecordedRun& run, const Axis& x, const Axis& y, Ink ink) {
  for (const RunEvent& event : run.events) {
    if (event.reason != "Validated" || !event.loss || !std::isfinite(*event.loss)) continue;
    const double at = static_cast<double>(event.step);
    if (at < x.low || at > x.high || *event.loss < y.low || *event.loss > y.high) continue;
    const Point p{x(at), y(*event.loss)};
    picture.shapes.push_back(
        Area{{{p.x, p.y - 5}, {p.x + 5, p.y}, {p.x, p.y + 5}, {p.x - 5, p.y}}, Ink::kPaper, {}});
    picture.shapes.push_back(Area{{{p.x, p.y - 4}, {p.x + 4, p.y}, {p.x, p.y + 4}, {p.x - 4, p.y}},
                                  ink,
                                  fmt::format("{}: {}", run.name, event.message)});
  }
}

bool HasValidation(const std::vector<RecordedRun>& runs) {
  return std::ranges::any_of(runs, [](const RecordedRun& run) {
    return std::ranges::any_of(run.events, [](const RunEvent& event) { return event.reason == "Validated"; });
  });
}

// "demo  step 120, loss 2.2626".
std::string LegendText(const RecordedRun& run) {
  if (run.steps.empty()) return run.name + "  no step yet";
  const auto& last = run.steps.back();
  std::string text = fmt::format("{}  step {}, loss ", run.name, TickLabel(static_cast<double>(last.step)));
  text += std::isfinite(last.loss) ? fmt::format("{:.4f}", last.loss) : "not a number";
  const auto bad =
      std::ranges::count_if(run.steps, [](const auto& step) { return !std::isfinite(step.loss); });
  if (bad > 0) text += fmt::format(" ({} steps without a number)", bad);
  return text;
}

double DrawLoss(Picture& picture, const std::vector<RecordedRun>& runs, double top) {
  Write(picture, {24, top + 20}, "Training loss", Ink::kText, 16, Words::Anchor::kStart, true);
  const std::string equal = EqualLossesText(runs);
  if (!equal.empty()) Write(picture, {kRight, top + 20}, equal, Ink::kDim, 12, Words::Anchor::kEnd);
  std::vector<const std::vector<rendezvous::StepRecord>*> curves;
  int64_t first = 0, last = 0;
  for (const RecordedRun& run : runs) {
    curves.push_back(&run.steps);
    if (run.steps.empty()) continue;
    first = first == 0 ? run.steps.front().step : std::min(first, run.steps.front().step);
    last = std::max(last, run.steps.back().step);
  }
  double legend = top + 44;
  for (size_t i = 0; i < runs.size(); ++i) {
    Draw(picture, {{24, legend - 4}, {46, legend - 4}}, InkOfRun(i), 3);
    Write(picture, {54, legend}, LegendText(runs[i]), Ink::kText, 13);
    if (i == 0 && HasValidation(runs))
      Write(picture, {kRight, legend}, "\u25c6 validation loss", Ink::kDim, 12, Words::Anchor::kEnd);
    legend += 20;
  }
  const double area_top = legend, area_bottom = legend + kLossHeight;
  const Range range = LossRange(curves);
  const bool log = range.low > 0 && range.high / range.low > 50;
  const double room = log ? 0 : 0.04 * (range.high - range.low);
  const Axis y{range.low - room, range.high + room, area_bottom, area_top, log};
  const Axis x{static_cast<double>(first), static_cast<double>(std::max(last, first + 1)), kLeft, kRight,
               false};
  for (const double tick : log ? LogTicksOf(y.low, y.high) : TicksOf(y.low, y.high, 6)) {
    Draw(picture, {{kLeft, y(tick)}, {kRight, y(tick)}}, Ink::kGrid, 1);
    Write(picture, {kLeft - 8, y(tick) + 4}, TickLabel(tick), Ink::kDim, 12, Words::Anchor::kEnd);
  }
  for (const double tick : TicksOf(x.low, x.high, 8)) {
    if (tick != std::floor(tick)) continue;
    Write(picture, {x(tick), area_bottom + 18}, TickLabel(tick), Ink::kDim, 12, Words::Anchor::kMiddle);
  }
  Write(picture, {kLeft - 8, area_bottom + 18}, "step", Ink::kDim, 12, Words::Anchor::kEnd);
  if (last == 0)
    Write(picture, {(kLeft + kRight) / 2, (area_top + area_bottom) / 2}, "no step has been committed yet",
          Ink::kDim, 14, Words::Anchor::kMiddle);
  // Later curves are thinner, so that equal curves are all visible.
  for (size_t i = 0; i < runs.size(); ++i) {
    const double width = 1.5 + 2.5 * static_cast<double>(std::min<size_t>(runs.size() - 1 - i, 3));
    DrawCurve(picture, Downsample(runs[i].steps, first, last, static_cast<int>(kRight - kLeft)), x, y,
              InkOfRun(i), width);
  }
  for (size_t i = 0; i < runs.size(); ++i) DrawValidation(picture, runs[i], x, y, InkOfRun(i));
  return area_bottom + 40;
}

Ink InkOf(MarkKind kind) {
  switch (kind) {
    case MarkKind::kJoined:
      return Ink::kJoin;
    case MarkKind::kLeaving:
      return Ink::kLeave;
    case MarkKind::kSilent:
    case MarkKind::kDevice:
    case MarkKind::kSlow:
      return Ink::kSilent;
    default:
      return Ink::kFailure;
  }
}

// A cross for a kill, a square for a stop, a bar for a failure, an hourglass for a hang, a triangle up for a
// join, down for a leave, a disc otherwise.
Area ShapeOf(MarkKind kind, double x, double y, std::string hint) {
  const Ink ink = InkOf(kind);
  switch (kind) {
    case MarkKind::kStruck: {
      constexpr double a = 1.6, b = 5.2;
      Area cross{{}, ink, std::move(hint)};
      for (const Point& p : {Point{0, -a},
                             {b - a, -b},
                             {b, a - b},
                             {a, 0},
                             {b, b - a},
                             {b - a, b},
                             {0, a},
                             {a - b, b},
                             {-b, b - a},
                             {-a, 0},
                             {-b, a - b},
                             {a - b, -b}})
        cross.points.push_back({x + p.x, y + p.y});
      return cross;
    }
    case MarkKind::kStopped:
      return Box(x - 4.5, y - 4.5, 9, 9, ink, std::move(hint));
    case MarkKind::kFailed:
      return Box(x - 1.2, y - 9, 2.4, 18, ink, std::move(hint));
    case MarkKind::kHung:
      return {{{x - 5, y - 6}, {x + 5, y - 6}, {x - 5, y + 6}, {x + 5, y + 6}}, ink, std::move(hint)};
    case MarkKind::kJoined:
      return {{{x - 5, y + 4.5}, {x + 5, y + 4.5}, {x, y - 4.5}}, ink, std::move(hint)};
    case MarkKind::kLeaving:
      return {{{x - 5, y - 4.5}, {x + 5, y - 4.5}, {x, y + 4.5}}, ink, std::move(hint)};
    default:
      return {{{x, y - 5}, {x + 5, y}, {x, y + 5}, {x - 5, y}}, ink, std::move(hint)};
  }
}

void DrawTimeAxis(Picture& picture, const Axis& x, double top, double bottom) {
  // Ticks of minutes are multiples of minutes.
  const double unit = x.high > 7200 ? 3600 : x.high > 180 ? 60 : 1;
  for (const double tick : TicksOf(0, x.high / unit, 8)) {
    Draw(picture, {{x(tick * unit), top}, {x(tick * unit), bottom}}, Ink::kGrid, 1);
    const char* name = unit == 3600 ? " h" : unit == 60 ? " min" : " s";
    Write(picture, {x(tick * unit), bottom + 16}, TickLabel(tick) + name, Ink::kDim, 12,
          Words::Anchor::kMiddle);
  }
}

// One legend entry per kind that occurs.
void DrawMarkLegend(Picture& picture, const GangTimeline& timeline, double y) {
  double x = kLeft + 6;
  const auto entry = [&](Area shape, const std::string& text) {
    picture.shapes.push_back(std::move(shape));
    Write(picture, {x + 12, y + 4}, text, Ink::kDim, 12);
    x += 34 + 6.6 * static_cast<double>(text.size());
  };
  entry(Box(x - 6, y - 5, 12, 10, Ink::kMember), "member, by generation");
  for (const MarkKind kind :
       {MarkKind::kStruck, MarkKind::kStopped, MarkKind::kFailed, MarkKind::kHung, MarkKind::kSilent,
        MarkKind::kLeaving, MarkKind::kJoined, MarkKind::kOperation, MarkKind::kDevice, MarkKind::kSlow}) {
    const bool occurs = std::ranges::any_of(timeline.lanes, [kind](const auto& lane) {
      return std::ranges::any_of(lane.marks, [kind](const auto& mark) { return mark.kind == kind; });
    });
    if (occurs) entry(ShapeOf(kind, x, y, {}), NameOf(kind));
  }
}

void DrawLane(Picture& picture, const GangTimeline::Lane& lane, const Axis& x, double y) {
  Write(picture, {kLeft - 8, y + 4}, lane.pod, Ink::kText, 12, Words::Anchor::kEnd);
  for (const auto& span : lane.spans) {
    const double begin = x(span.begin);
    picture.shapes.push_back(Box(begin, y - kBarHeight / 2, std::max(0.5, x(span.end) - begin), kBarHeight,
                                 span.generation % 2 == 1 ? Ink::kMember : Ink::kMemberAlt,
                                 fmt::format("{} in generation {}, {} to {}", lane.pod, span.generation,
                                             TimeLabel(span.begin), TimeLabel(span.end))));
  }
  for (const auto& mark : lane.marks)
    picture.shapes.push_back(
        ShapeOf(mark.kind, x(mark.at), y, fmt::format("{}: {}", TimeLabel(mark.at), mark.text)));
}

// Bars as wide as the recoveries took, at least as wide as the eye can see, with their times where there is
// room.
void DrawRecoveries(Picture& picture, const GangTimeline& timeline, const Axis& x, double y) {
  if (timeline.recoveries.empty()) return;
  Write(picture, {kLeft - 8, y + 4}, "recovery", Ink::kText, 12, Words::Anchor::kEnd);
  double free_from = kLeft;
  for (size_t i = 0; i < timeline.recoveries.size(); ++i) {
    const auto& recovery = timeline.recoveries[i];
    const double begin = x(recovery.begin);
    const std::string took = TimeLabel(recovery.end - recovery.begin);
    picture.shapes.push_back(Box(begin, y - 7, std::max(2.0, x(recovery.end) - begin), 14, Ink::kFailure,
                                 fmt::format("generation {} after {}", recovery.generation, took)));
    const double width = 6.4 * static_cast<double>(took.size());
    const double until = i + 1 < timeline.recoveries.size() ? x(timeline.recoveries[i + 1].begin) : kRight;
    if (begin < free_from || x(recovery.end) + 4 + width > until) continue;
    Write(picture, {x(recovery.end) + 4, y + 4}, took, Ink::kDim, 11);
    free_from = begin + 12 + width;
  }
}

void DrawCheckpoints(Picture& picture, const GangTimeline& timeline, const Axis& x, double y) {
  if (timeline.checkpoints.empty()) return;
  Write(picture, {kLeft - 8, y + 4}, "checkpoint", Ink::kText, 12, Words::Anchor::kEnd);
  double free_from = kLeft;
  for (const auto& checkpoint : timeline.checkpoints) {
    const double at = x(checkpoint.at);
    picture.shapes.push_back(Area{{{at, y - 6}, {at + 6, y}, {at, y + 6}, {at - 6, y}},
                                  Ink::kCheckpoint,
                                  fmt::format("checkpoint of step {}", checkpoint.step)});
    const std::string step = std::to_string(checkpoint.step);
    const double width = 7 * static_cast<double>(step.size());
    if (at + 9 < free_from || at + 9 + width > kRight + 20) continue;
    Write(picture, {at + 9, y + 4}, step, Ink::kDim, 11);
    free_from = at + 18 + width;
  }
}

double DrawGang(Picture& picture, const RecordedRun& run, bool named, double top) {
  const GangTimeline& timeline = run.timeline;
  Write(picture, {24, top + 20}, named ? "Workers of " + run.name : "Workers", Ink::kText, 16,
        Words::Anchor::kStart, true);
  Write(picture, {kRight, top + 20}, GangText(timeline), Ink::kDim, 12, Words::Anchor::kEnd);
  DrawMarkLegend(picture, timeline, top + 42);
  const size_t lanes = std::min(timeline.lanes.size(), kMaxLanes);
  const Axis x{0, std::max(timeline.end, 1e-3), kLeft, kRight, false};
  const double first = top + 72;
  double y = first + kLaneHeight * static_cast<double>(lanes);
  const double rows = (timeline.recoveries.empty() ? 0 : 1) + (timeline.checkpoints.empty() ? 0 : 1);
  const double bottom = y + rows * kLaneHeight - kLaneHeight / 2;
  DrawTimeAxis(picture, x, first - kLaneHeight / 2, bottom);
  for (size_t i = 0; i < lanes; ++i)
    DrawLane(picture, timeline.lanes[i], x, first + kLaneHeight * static_cast<double>(i));
  if (!timeline.recoveries.empty()) {
    DrawRecoveries(picture, timeline, x, y);
    y += kLaneHeight;
  }
  DrawCheckpoints(picture, timeline, x, y);
  if (timeline.lanes.size() > lanes)
    Write(picture, {kRight, bottom + 34},
          fmt::format("{} more workers are not shown", timeline.lanes.size() - lanes), Ink::kDim, 12,
          Words::Anchor::kEnd);
  return bottom + 40;
}

}  // namespace

std::string EqualLossesText(const std::vector<RecordedRun>& runs) {
  if (runs.size() < 2) return {};
  int64_t common = 0;
  const auto& ours = runs.front().steps;
  for (size_t other = 1; other < runs.size(); ++other) {
    const auto& theirs = runs[other].steps;
    int64_t equal = 0;
    for (size_t i = 0, j = 0; i < ours.size() && j < theirs.size();) {
      if (ours[i].step != theirs[j].step) {
        ours[i].step < theirs[j].step ? ++i : ++j;
        continue;
      }
      if (std::memcmp(&ours[i].loss, &theirs[j].loss, sizeof(double)) != 0) return {};
      ++i, ++j, ++equal;
    }
    common = other == 1 ? equal : std::min(common, equal);
  }
  if (common == 0) return {};
  return fmt::format("all {} losses are equal, bit for bit", TickLabel(static_cast<double>(common)));
}

std::string GangText(const GangTimeline& timeline) {
  int64_t failures = 0;
  for (const auto& lane : timeline.lanes)
    failures += std::ranges::count_if(lane.marks, [](const auto& mark) {
      return mark.kind == MarkKind::kFailed || mark.kind == MarkKind::kHung;
    });
  const auto plural = [](int64_t n, const char* one, const char* many) {
    return fmt::format("{} {}", n, n == 1 ? one : many);
  };
  std::string text = plural(static_cast<int64_t>(timeline.generations.size()), "generation", "generations") +
                     ", " + plural(failures, "failure", "failures");
  if (const auto median = MedianRecoverySeconds(timeline))
    text += fmt::format(", recovered in {} (median of {})", TimeLabel(*median), timeline.recoveries.size());
  if (!timeline.ended) text += ", still running";
  return text;
}

Picture DrawChart(const std::vector<RecordedRun>& runs, ChartPart part) {
  Picture picture;
  picture.width = kWidth;
  picture.title = "Training with Ringmaster";
  double y = 12;
  if (part != ChartPart::kGang) {
    y = DrawLoss(picture, runs, y);
    for (const RecordedRun& run : runs) picture.description += LegendText(run) + ". ";
    if (const std::string equal = EqualLossesText(runs); !equal.empty()) picture.description += equal + ". ";
  }
  if (part != ChartPart::kLoss) {
    for (const RecordedRun& run : runs) {
      if (run.timeline.lanes.empty()) continue;
      y = DrawGang(picture, run, runs.size() > 1, y);
      picture.description += fmt::format("{}: {}. ", run.name, GangText(run.timeline));
    }
  }
  picture.height = y + 4;
  return picture;
}

}  // namespace ringmaster::cli
