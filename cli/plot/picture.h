// SPDX-License-Identifier: Apache-2.0

// A drawing as a value: shapes in paint order, with colours by role. chart.h creates it, ToSvg and the PNG
// library (png_library.h) write it. The SVG has light and dark colours and follows the viewer's setting; a
// PNG has the light ones. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ringmaster::cli {

enum class Ink : uint8_t {
  kPaper,
  kText,
  kDim,  // secondary text
  kGrid,
  kRun1,  // the curves of runs, in this order
  kRun2,
  kRun3,
  kRun4,
  kRun5,
  kRun6,
  kMember,     // a worker takes part, in generations with odd numbers
  kMemberAlt,  // with even numbers
  kFailure,
  kJoin,
  kLeave,
  kSilent,
  kCheckpoint,
};
inline constexpr int kInks = 17;
inline constexpr int kRunInks = 6;

struct Rgb {
  uint8_t red = 0, green = 0, blue = 0;
};
Rgb ColourOf(Ink ink, bool dark);

struct Point {
  double x = 0;
  double y = 0;
};

struct Stroke {
  std::vector<Point> points;
  Ink ink = Ink::kText;
  double width = 1;
  double opacity = 1;
};
struct Area {  // a filled polygon
  std::vector<Point> points;
  Ink ink = Ink::kText;
  std::string hint;  // shown by a viewer when the pointer rests on it
};
struct Words {
  enum class Anchor : uint8_t { kStart, kMiddle, kEnd };
  Point at;  // on the base line
  std::string text;
  Ink ink = Ink::kText;
  double size = 12;
  Anchor anchor = Anchor::kStart;
  bool bold = false;
};
using Shape = std::variant<Stroke, Area, Words>;

struct Picture {
  double width = 0;
  double height = 0;
  std::string title;        // for screen readers
  std::string description;  // the same, longer
  std::vector<Shape> shapes;
};

Area Box(double x, double y, double width, double height, Ink ink, std::string hint = {});

std::string ToSvg(const Picture& picture);

}  // namespace ringmaster::cli
