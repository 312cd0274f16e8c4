// SPDX-License-Identifier: Apache-2.0

// Waiting marks a scope in which this rank computes nothing and only waits: for its peers, for the device or
// for training data. The agent's hang watch judges each kind by a separate limit. Thread-safe, like
// TrainerPage.
#pragma once

#include "base/time.h"
#include "worker/agent/trainer/trainer_page.h"

namespace ringmaster::trainer {

class Waiting {
 public:
  // `page` may be null: then this does nothing.
  explicit Waiting(agent::TrainerPage* page, agent::Activity activity = agent::Activity::kExchanging)
      : page_(page) {
    Set(activity);
  }
  // For peers; adds the time to `waited`.
  Waiting(agent::TrainerPage* page, Duration* waited) : page_(page), waited_(waited), began_(Now()) {
    Set(agent::Activity::kExchanging);
  }
  ~Waiting() {
    Set(agent::Activity::kComputing);
    if (waited_ != nullptr) *waited_ += Now() - began_;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void Set(agent::Activity activity) const {
    if (page_ != nullptr) page_->SetActivity(activity);
  }

  agent::TrainerPage* const page_;
  Duration* const waited_ = nullptr;
  const Time began_{};
};

}  // namespace ringmaster::trainer
