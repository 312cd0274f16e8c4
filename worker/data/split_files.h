// SPDX-License-Identifier: Apache-2.0

// Divides the files of text and tokens into training and validation, by the field validationPath and by their
// names. Pure functions of the file system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::data {

enum class Part : uint8_t { kUnnamed, kTrain, kValidation, kTest };

// Returns which part of a data set a path below its folder names: "train.bin", "tiny_shakespeare_val.bin",
// "wiki.test.tokens", "fineweb_train_000001.bin", "train-00000-of-00002.txt", "valid/a.txt". The outermost
// folder that names a part decides, then the name of the file.
Part NamedPart(const std::string& relative_path);

struct SplitFiles {
  std::vector<std::string> train;
  std::vector<std::string> validation;
  std::vector<std::string> notes;  // for users: which files were taken for what, unless that is obvious
};

// Lists the files below `path` and `validation_path` that end in `suffix`. A file in both belongs to the path
// that is below the other one, so that no sample is in both parts. Without `validation_path`, names divide a
// folder that has files for training and others for validation or test; test files are not used when there
// are files for validation. Otherwise all files are for training. Errors: names divide only some of the
// files; as FilesBelow.
Result<SplitFiles> FindSplit(const std::string& path, const std::string& validation_path,
                             const std::string& suffix);

}  // namespace ringmaster::data
