// SPDX-License-Identifier: Apache-2.0

// Names in a checkpoint folder. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ringmaster::checkpoint {

inline constexpr std::string_view kManifestName = "MANIFEST";
inline constexpr std::string_view kLockName = "LOCK";  // in a temporary folder
// Next to the checkpoints. Not ".lock", which `ringmaster run` holds in its output folder: users may give
// both the same folder.
inline constexpr std::string_view kFolderLockName = ".checkpoints.lock";
inline constexpr std::string_view kRunLockName = ".run.lock";       // held by `ringmaster run` while it runs
inline constexpr std::string_view kAttemptName = ".attempt";        // attempt.h
inline constexpr std::string_view kDataHashesName = "data-hashes";  // the workers' hashes of the data

std::string StepName(int64_t step);                           // "step-000000000300"
std::optional<int64_t> ParseStepName(std::string_view name);  // only the output of StepName

std::string TemporaryName(int64_t step, std::string_view unique);  // "step-000000000300.tmp-<unique>"
bool IsTemporaryName(std::string_view name);

std::string ChunkName(int64_t index);  // "chunk-00000"
bool IsChunkName(std::string_view name);

// Returns whether a file of this name in a step's folder is one that a writer creates there.
bool IsOurFile(std::string_view name);
// Returns whether NFS gave the file this name because it was removed while a process had it open. It
// disappears when that process closes it.
bool IsSillyName(std::string_view name);

}  // namespace ringmaster::checkpoint
