// SPDX-License-Identifier: Apache-2.0

// The files of the live page. The build embeds them: cli/ui/page/dist, made from cli/ui/page by
// cli/ui/page/build.
#pragma once

#include <span>
#include <string_view>

namespace ringmaster::cli {

struct PageAsset {
  std::string_view path;
  std::string_view content_type;
  std::string_view content;
};

std::span<const PageAsset> PageAssets();

}  // namespace ringmaster::cli
