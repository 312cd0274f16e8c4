// SPDX-License-Identifier: Apache-2.0

// Waiting marks a scope in which this rank computes nothing and only waits: for its peers, for the device or
// for training data. The agent's hang watch judges each kind by a separate limit. Thread-safe, like
// TrainerPage.
#pragma once

#include "worker/agent/trainer_page.h"

namespace ringmaster::trainer {

class Waiting {
 public:
  // `page` may be null: then this does nothing.
  explicit Waiting(agent::TrainerPage* page, agent::Activity activity = agent::Activity::kExchanging)
      : page_(page) {
    Set(activity);
  }
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
