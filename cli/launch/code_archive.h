// SPDX-License-Identifier: Apache-2.0

// Packs code as a compressed tar whose bytes depend only on the files, and puts it into a ConfigMap that is
// named by their hash. Pure functions.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "cli/launch/code_folder.h"

namespace ringmaster::cli::launch {

// A manifest with the archive in base64 stays below the 1 MiB that is read of a manifest.
inline constexpr size_t kMostArchiveBytes = size_t{700} << 10;
inline constexpr const char* kArchiveKey = "code.tar.gz";
inline constexpr const char* kCodeLabel = "ringmaster.dev/code";  // of the ConfigMaps with code

struct CodeArchive {
  std::string name;  // of the ConfigMap: equal code has equal names
  std::string bytes;
};

// Errors: kInvalid with the largest files and the remedy if the archive is larger than kMostArchiveBytes.
Result<CodeArchive> PackCode(const CodeFolder& code);

// Returns the immutable ConfigMap.
Json CodeConfigMap(const CodeArchive& archive);

}  // namespace ringmaster::cli::launch
