// SPDX-License-Identifier: Apache-2.0

// As long as one lives, this rank computes nothing but waits for what others send: the agent's hang watch
// does not blame it for their silence. Thread rule: that of TrainerPage.
#pragma once

#include "worker/agent/trainer_page.h"

namespace ringmaster::trainer {

class Waiting {
 public:
  // `slot` may be null: nobody watches then.
  explicit Waiting(agent::TrainerPage* page) : page_(page) { Say(agent::Activity::kExchanging); }
  ~Waiting() { Say(agent::Activity::kComputing); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void Say(agent::Activity activity) const {
    if (page_ != nullptr) page_->SetActivity(activity);
  }

  agent::TrainerPage* const page_;
};

}  // namespace ringmaster::trainer
