// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/data_hash.h"

#include <cstdlib>

#include "base/hash.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/time.h"
#include "worker/checkpoint/names.h"

namespace ringmaster::trainer {
namespace {

std::string VariableOr(const char* name, std::string otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

}  // namespace

std::string DataHashFolder(const std::string& checkpoint_path) {
  if (!checkpoint_path.empty()) return checkpoint_path + "/" + std::string(checkpoint::kDataHashesName);
  const std::string cache = VariableOr("XDG_CACHE_HOME", "");
  return cache.empty() ? "" : cache + "/ringmaster/data-hashes";
}

// The environment is read here: the device may change it while the thread works.
DataHash::DataHash(const data::Dataset* dataset, const std::string& checkpoint_path)
    : dataset_(dataset),
      options_{.cache_folder = DataHashFolder(checkpoint_path),
               .node = VariableOr("RINGMASTER_NODE", HostName()),
               .counter = &counter_,
               .cancel = &cancel_},
      work_([this] { Run(); }) {}

DataHash::~DataHash() { cancel_ = true; }

void DataHash::Run() {
  const Time began = Now();
  result_ = dataset_->HashContent(options_);
  if (!result_->ok()) return;
  if (!(*result_)->whole) {
    log::Warn("data: its files have more than {} GiB, so workers compare samples of them and not every byte",
              options_.most_bytes >> 30);
  }
  log::Info("data={} hashed in {:.3f} s, {} bytes of it read from files", HashHex((*result_)->value),
            ToSeconds(Now() - began), (*result_)->bytes_read);
}

}  // namespace ringmaster::trainer
