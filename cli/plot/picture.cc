// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/picture.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace ringmaster::cli {
namespace {

struct Shades {
  uint32_t light = 0;
  uint32_t dark = 0;
};

// In the order of Ink. The colours of runs are Okabe and Ito's, which colour-blind readers can tell apart.
constexpr Shades kShades[kInks] = {
    {0xffffff, 0x0d1117}, {0x1f2328, 0xe6edf3}, {0x59636e, 0x9198a1}, {0xd9dee4, 0x2a313c},
    {0x0072b2, 0x58a6ff}, {0xd55e00, 0xff9b50}, {0x009e73, 0x3fcf9b}, {0xb4568c, 0xe39ac6},
    {0xb58900, 0xf0c000}, {0x3a9bd9, 0x8fd0f5}, {0x9cc3e6, 0x2f5d8a}, {0xbfd9ef, 0x24476a},
    {0xcf222e, 0xff6a63}, {0x1a7f37, 0x4ac26b}, {0x8250df, 0xb392f0}, {0xbc6b00, 0xe3a33b},
    {0x57606a, 0xc4ccd4},
};

// Coordinates with one decimal are below what a viewer resolves.
std::string Coordinate(double value) {
  const double rounded = std::round(value * 10) / 10;
  return fmt::format("{:g}", rounded == 0 ? 0 : rounded);
}

std::string Points(const std::vector<Point>& points) {
  std::string text;
  for (const Point& point : points)
    text += (text.empty() ? "" : " ") + Coordinate(point.x) + "," + Coordinate(point.y);
  return text;
}

// Control characters have no place in XML.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else if (c == '>')
      escaped += "&gt;";
    else if (c == '"')
      escaped += "&quot;";
    else
      escaped += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return escaped;
}

std::string StyleRules(bool dark) {
  std::string rules;
  for (int i = 0; i < kInks; ++i) {
    const Rgb colour = ColourOf(static_cast<Ink>(i), dark);
    const std::string hex = fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue);
    rules += fmt::format(".f{}{{fill:{}}}.s{}{{stroke:{}}}", i, hex, i, hex);
  }
  return rules;
}

std::string SvgOf(const Stroke& stroke) {
  return fmt::format(
      R"(<polyline class="s{}" fill="none" stroke-width="{}" stroke-linejoin="round"{} points="{}"/>)",
      static_cast<int>(stroke.ink), Coordinate(stroke.width),
      stroke.opacity < 1 ? fmt::format(R"( stroke-opacity="{:g}")", stroke.opacity) : "",
      Points(stroke.points));
}

std::string SvgOf(const Area& area) {
  const std::string shape =
      fmt::format(R"(<polygon class="f{}" points="{}")", static_cast<int>(area.ink), Points(area.points));
  return area.hint.empty() ? shape + "/>" : shape + "><title>" + Escaped(area.hint) + "</title></polygon>";
}

std::string SvgOf(const Words& words) {
  const char* anchor = words.anchor == Words::Anchor::kMiddle ? R"( text-anchor="middle")"
                       : words.anchor == Words::Anchor::kEnd  ? R"( text-anchor="end")"
                                                              : "";
  return fmt::format(R"(<text class="f{}" x="{}" y="{}" font-size="{}"{}{}>{}</text>)",
                     static_cast<int>(words.ink), Coordinate(words.at.x), Coordinate(words.at.y),
                     Coordinate(words.size), anchor, words.bold ? R"( font-weight="600")" : "",
                     Escaped(words.text));
}

}  // namespace

Rgb ColourOf(Ink ink, bool dark) {
  const Shades& shades = kShades[static_cast<size_t>(ink)];
  const uint32_t value = dark ? shades.dark : shades.light;
  return {static_cast<uint8_t>(value >> 16), static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)};
}

Area Box(double x, double y, double width, double height, Ink ink, std::string hint) {
  return {{{x, y}, {x + width, y}, {x + width, y + height}, {x, y + height}}, ink, std::move(hint)};
}

std::string ToSvg(const Picture& picture) {
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img")"
      R"( aria-labelledby="title description" font-family="system-ui,-apple-system,'Segoe UI',Roboto,)"
      R"('DejaVu Sans',sans-serif">)"
      "\n<title id=\"title\">{2}</title>\n<desc id=\"description\">{3}</desc>\n",
      Coordinate(picture.width), Coordinate(picture.height), Escaped(picture.title),
      Escaped(picture.description));
  svg += "<style>" + StyleRules(false) + "@media (prefers-color-scheme:dark){" + StyleRules(true) +
         "}</style>\n";
  svg += SvgOf(Box(0, 0, picture.width, picture.height, Ink::kPaper)) + "\n";
  for (const Shape& shape : picture.shapes)
    svg += std::visit([](const auto& one) { return SvgOf(one); }, shape) + "\n";
  return svg + "</svg>\n";
}

}  // namespace ringmaster::cli
