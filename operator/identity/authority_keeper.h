// SPDX-License-Identifier: Apache-2.0

// Keeps the papers in their Secret: makes them when there are none, renews them in time, takes up what
// another operator wrote. Only the leader runs one.
//
// One thread. `on_papers` runs on it, whenever the papers are others than those told last. Papers and bundle
// may be read from any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "operator/identity/authority.h"
#include "operator/kube/api_client.h"

namespace ringmaster::identity {

class AuthorityKeeper {
 public:
  struct Options {
    std::string namespace_;
    std::string secret_name;
    std::vector<std::string> names;  // what agents call the server
    std::chrono::seconds authority_life = std::chrono::hours(24 * 365);
    std::function<void(const Papers&)> on_papers;
  };

  // `api` must outlive the keeper.
  AuthorityKeeper(kube::ApiClient& api, Options options);
  ~AuthorityKeeper();
  AuthorityKeeper(const AuthorityKeeper&) = delete;
  AuthorityKeeper& operator=(const AuthorityKeeper&) = delete;

 private:
  void Run();
  // One look at the Secret, and a write when something is due. False: try again soon.
  bool Look();
  bool Wait(Duration pause);  // false: told to stop

  kube::ApiClient& api_;
  const Options options_;
  std::optional<Papers> told_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ringmaster::identity
