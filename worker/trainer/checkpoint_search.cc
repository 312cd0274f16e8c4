// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/checkpoint_search.h"

#include <utility>

namespace ringmaster::trainer {
namespace {

constexpr size_t kMaxText = 1024;  // of a status

}  // namespace

CheckpointSearch::CheckpointSearch(std::string folder, checkpoint::Identity identity)
    : folder_(std::move(folder)), identity_(std::move(identity)) {}

void CheckpointSearch::Answer(Duration patience, rendezvous::MemberStatus* status) {
  if (folder_.empty()) {
    status->checkpoint_text = "spec.checkpoint.path is not set";
    return;
  }
  const Time deadline = Now() + patience;
  while (true) {
    if (search_ == nullptr) {
      search_ = std::make_unique<Search>();
      search_->work = std::make_unique<BackgroundWork>(
          [this, search = search_.get()] { search->newest = checkpoint::FindNewest(folder_, identity_); });
    }
    if (!search_->work->Wait(deadline - Now())) {
      status->looking = true;
      status->checkpoint_text = folder_ + " is still being read";
      return;
    }
    const std::unique_ptr<Search> done = std::move(search_);
    if (done->forgotten) continue;
    status->checkpoint_step = done->newest.step;
    status->checkpoint_text = done->newest.text.substr(0, kMaxText);
    return;
  }
}

void CheckpointSearch::Forget() {
  if (search_ != nullptr) search_->forgotten = true;
}

}  // namespace ringmaster::trainer
