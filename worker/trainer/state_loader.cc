// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/state_loader.h"

#include <utility>

#include "base/log.h"
#include "worker/checkpoint/attempt.h"

namespace ringmaster::trainer {

StateLoader::StateLoader(Options options) : options_(std::move(options)), work_([this] { Run(); }) {}

StateLoader::~StateLoader() { cancel_ = true; }

void StateLoader::Run() {
  if (!options_.folder.empty()) {
    log::Info("looking for a checkpoint in {}", options_.folder);
    checkpoint::TakeFolderOrWarn(options_.folder, options_.member);
    auto found = checkpoint::LoadNewest(options_.folder, options_.identity, &cancel_, &counter_);
    if (found.ok() || found.error().code != Code::kNotFound || !options_.identity.from.empty()) {
      found_ = std::move(found);
      return;
    }
    note_ = checkpoint::NoteOfOldPath(options_.folder, options_.identity.run);
  }
  options_.state->FillInitial(*options_.model, options_.seed, &cancel_);
}

}  // namespace ringmaster::trainer
