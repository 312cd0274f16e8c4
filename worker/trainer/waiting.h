// SPDX-License-Identifier: Apache-2.0

// Waiting marks a scope in which this rank only waits for its peers, so that the agent's hang watch does not
// blame it for their silence. Thread-safe, like TrainerPage.
#pragma once

#include "worker/agent/trainer_page.h"

namespace ringmaster::trainer {

class Waiting {
 public:
  // `page` may be null: then this does nothing.
  explicit Waiting(agent::TrainerPage* page) : page_(page) { Set(agent::Activity::kExchanging); }
  ~Waiting() { Set(agent::Activity::kComputing); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void Set(agent::Activity activity) const {
    if (page_ != nullptr) page_->SetActivity(activity);
  }

  agent::TrainerPage* const page_;
};

}  // namespace ringmaster::trainer
