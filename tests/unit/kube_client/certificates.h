// SPDX-License-Identifier: Apache-2.0

// Creates certificates for tests.
#pragma once

#include <string>
#include <vector>

namespace ringmaster::kube {

struct TestIdentity {
  std::string cert_pem;
  std::string key_pem;
};

TestIdentity MakeAuthority(const std::string& name);

// `names`: "DNS:localhost", "IP:127.0.0.1".
TestIdentity Issue(const TestIdentity& authority, const std::string& subject,
                   const std::vector<std::string>& names);

}  // namespace ringmaster::kube
