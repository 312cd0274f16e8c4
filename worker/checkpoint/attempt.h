// SPDX-License-Identifier: Apache-2.0

// The attempt that owns a folder of checkpoints. Two attempts of a run may live at once: a node that was
// declared dead continues behind a broken network. The file .attempt in the folder names the newest one. A
// member that begins an attempt, by loading a checkpoint or by starting over, takes the folder; from then on
// the writers of older attempts fail with kGone and change nothing.
//
// Pure functions of the file system.
#pragma once

#include <string>

#include "base/result.h"
#include "base/time.h"

namespace ringmaster::checkpoint {

// Takes the folder for a new attempt and returns its name, which is unique. Creates the folder. `member` is
// part of the name, for people. When this returns, older attempts publish nothing any more, also those that
// were stopped at any moment and hold the lock of the folder, for which it waits up to `patience`.
Result<std::string> TakeFolder(const std::string& folder, const std::string& member,
                               Duration patience = seconds(10));

// As TakeFolder, and logs a failure: an attempt that cannot take the folder can still train.
void TakeFolderOrWarn(const std::string& folder, const std::string& member);

// Returns the name of the attempt that owns the folder; empty: none.
Result<std::string> OwnerOf(const std::string& folder);

}  // namespace ringmaster::checkpoint
