// SPDX-License-Identifier: Apache-2.0

// Reading checkpoints back. Nothing here changes the disk; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/checkpoint/manifest.h"

namespace ringmaster::checkpoint {

// The folder's MANIFEST, and that it is the one of the step in the folder's name. kCorrupt when there is
// none.
Result<Manifest> ReadManifest(const std::string& folder);

// Reads one chunk into `to` (chunk.bytes long) and compares its checksum.
Status ReadChunk(const std::string& folder, const Chunk& chunk, std::span<std::byte> to);

// That every chunk is there and has its length. Before anything allocates by a manifest's word.
Status CheckSizes(const std::string& folder, const Manifest& manifest);

// Everything: the manifest and every chunk.
Result<Manifest> Verify(const std::string& folder);

// Steps that have a published folder, whatever its state, ascending. kNotFound when the folder is not there.
Result<std::vector<int64_t>> StepsIn(const std::string& folder);

// Names in a folder; empty when it cannot be read.
std::vector<std::string> NamesIn(const std::string& folder);

}  // namespace ringmaster::checkpoint
