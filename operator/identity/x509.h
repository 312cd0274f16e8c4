// SPDX-License-Identifier: Apache-2.0

// Creates and checks X.509 certificates: authorities, and leaves for the operator's servers. EC P-256,
// SHA-256. Pure, except for randomness.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::identity {

struct KeyPair {
  std::string cert_pem;
  std::string key_pem;  // must not be logged
  bool operator==(const KeyPair&) const = default;
};

// Creates a self-signed authority, valid from an hour before `now` (clocks differ) until `now + lifetime`.
Result<KeyPair> MakeAuthority(const std::string& name, kube::WallTime now, std::chrono::seconds lifetime);

// Creates a server certificate for these DNS names and IP addresses. It does not outlive the authority.
Result<KeyPair> MakeLeaf(const KeyPair& authority, const std::vector<std::string>& names, kube::WallTime now,
                         std::chrono::seconds lifetime);

// Returns when the first certificate in the text expires. kInvalid: there is none.
Result<kube::WallTime> ExpiryOf(const std::string& cert_pem);

// Returns true if `authority` signed `leaf`, the leaf is valid at `now` for all of `names`, and its key
// matches.
bool IsGoodLeaf(const KeyPair& leaf, const std::string& authority_pem, const std::vector<std::string>& names,
                kube::WallTime now);

}  // namespace ringmaster::identity
