// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/state_loader.h"

#include <utility>

#include "base/log.h"

namespace ringmaster::trainer {

StateLoader::StateLoader(Options options) : options_(std::move(options)), work_([this] { Run(); }) {}

StateLoader::~StateLoader() { cancel_ = true; }

void StateLoader::Run() {
  if (!options_.folder.empty()) {
    log::Info("looking for a checkpoint in {}", options_.folder);
    auto found = checkpoint::LoadNewest(options_.folder, options_.fingerprint, &cancel_, &counter_);
    if (found.ok() || found.error().code != Code::kNotFound) {
      found_ = std::move(found);
      return;
    }
  }
  options_.state->FillInitial(*options_.model, options_.seed, &cancel_);
}

}  // namespace ringmaster::trainer
