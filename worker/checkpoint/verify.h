// SPDX-License-Identifier: Apache-2.0

// Reads and verifies checkpoints. Pure reads of the disk; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/checkpoint/manifest.h"

namespace ringmaster::checkpoint {

// Reads the folder's MANIFEST and checks that its step is the one in the folder's name. Errors: kCorrupt when
// there is none.
Result<Manifest> ReadManifest(const std::string& folder);

// Reads one chunk into `to` (chunk.bytes long) and compares its checksum.
Status ReadChunk(const std::string& folder, const Chunk& chunk, std::span<std::byte> to);

// Checks that the chunk exists and has its length. Call it before memory is allocated by the manifest's
// sizes.
Status CheckSize(const std::string& folder, const Chunk& chunk);
// As above, for every chunk.
Status CheckSizes(const std::string& folder, const Manifest& manifest);

// Verifies the manifest and every chunk.
Result<Manifest> Verify(const std::string& folder);

// Returns the steps with a published folder, valid or not, ascending. Errors: kNotFound when the folder does
// not exist.
Result<std::vector<int64_t>> StepsIn(const std::string& folder);

// Returns the names in a folder; empty when it cannot be read.
std::vector<std::string> NamesIn(const std::string& folder);

}  // namespace ringmaster::checkpoint
