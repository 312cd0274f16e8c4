// SPDX-License-Identifier: Apache-2.0

// libringmaster_png.so: paints a picture with cairo.
#include <cairo.h>

#include <memory>
#include <string>
#include <variant>

#include "cli/plot/png_library.h"

namespace ringmaster::cli {
namespace {

constexpr double kScale = 2;  // for dense screens

void Use(cairo_t* context, Ink ink, double opacity = 1) {
  const Rgb colour = ColourOf(ink, false);
  cairo_set_source_rgba(context, colour.red / 255.0, colour.green / 255.0, colour.blue / 255.0, opacity);
}

void Trace(cairo_t* context, const std::vector<Point>& points) {
  cairo_new_path(context);
  for (const Point& point : points) cairo_line_to(context, point.x, point.y);
}

void Paint(cairo_t* context, const Stroke& stroke) {
  Use(context, stroke.ink, stroke.opacity);
  cairo_set_line_width(context, stroke.width);
  cairo_set_line_join(context, CAIRO_LINE_JOIN_ROUND);
  Trace(context, stroke.points);
  cairo_stroke(context);
}

void Paint(cairo_t* context, const Area& area) {
  Use(context, area.ink);
  Trace(context, area.points);
  cairo_close_path(context);
  cairo_fill(context);
}

void Paint(cairo_t* context, const Words& words) {
  Use(context, words.ink);
  cairo_select_font_face(context, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         words.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(context, words.size);
  cairo_text_extents_t extents;
  cairo_text_extents(context, words.text.c_str(), &extents);
  const double shift = words.anchor == Words::Anchor::kStart    ? 0
                       : words.anchor == Words::Anchor::kMiddle ? extents.x_advance / 2
                                                                : extents.x_advance;
  cairo_move_to(context, words.at.x - shift, words.at.y);
  cairo_show_text(context, words.text.c_str());
}

}  // namespace
}  // namespace ringmaster::cli

extern "C" std::string ringmaster_write_png(const ringmaster::cli::Picture& picture, const std::string& path);

std::string ringmaster_write_png(const ringmaster::cli::Picture& picture, const std::string& path) {
  using namespace ringmaster::cli;
  const std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)> surface(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(picture.width * kScale),
                                 static_cast<int>(picture.height * kScale)),
      cairo_surface_destroy);
  const std::unique_ptr<cairo_t, decltype(&cairo_destroy)> context(cairo_create(surface.get()),
                                                                   cairo_destroy);
  cairo_scale(context.get(), kScale, kScale);
  Use(context.get(), Ink::kPaper);
  cairo_paint(context.get());
  for (const Shape& shape : picture.shapes)
    std::visit([&](const auto& one) { Paint(context.get(), one); }, shape);
  cairo_status_t status = cairo_status(context.get());
  if (status == CAIRO_STATUS_SUCCESS) status = cairo_surface_write_to_png(surface.get(), path.c_str());
  return status == CAIRO_STATUS_SUCCESS ? std::string() : cairo_status_to_string(status);
}
