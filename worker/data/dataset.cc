// SPDX-License-Identifier: Apache-2.0

#include "worker/data/dataset.h"

#include <exception>
#include <new>

#include "worker/data/folder.h"
#include "worker/data/image_dataset.h"
#include "worker/data/token_dataset.h"

namespace ringmaster::data {
namespace {

Result<std::unique_ptr<Dataset>> OpenKind(const Config& config, WorkCounter* counter) {
  switch (config.kind) {
    case Kind::kText:
    case Kind::kTokens:
      return OpenTokens(config, counter);
    case Kind::kIdx:
      return OpenIdx(config, counter);
    case Kind::kCifar10:
      return OpenCifar10(config, counter);
  }
  return Error{Code::kInternal, "unknown kind of data"};
}

// Messages name the same file in the same way, whether the folder was given with a slash at its end or not.
void RemoveTrailingSlashes(std::string* path) {
  if (!IsFolder(*path)) return;  // a file with a slash at its end is an error
  while (path->size() > 1 && path->back() == '/') path->pop_back();
}

}  // namespace

Result<std::unique_ptr<Dataset>> Dataset::Open(const Config& config, WorkCounter* counter) {
  if (config.path.empty()) return Error{Code::kInvalid, "the data path is empty; give a file or a folder"};
  if (!(config.validation_fraction >= 0 && config.validation_fraction < 1)) {
    return Error{Code::kInvalid,
                 fmt::format("the validation fraction must be at least 0 and below 1 (got {})",
                             config.validation_fraction)};
  }
  Config plain = config;
  RemoveTrailingSlashes(&plain.path);
  RemoveTrailingSlashes(&plain.validation_path);
  try {
    return OpenKind(plain, counter);
  } catch (const std::bad_alloc&) {
    return Error{Code::kExhausted, config.path + ": does not fit into memory; give the worker more"};
  } catch (const std::exception& e) {
    return Error{Code::kInvalid, config.path + ": " + e.what()};
  }
}

}  // namespace ringmaster::data
