// SPDX-License-Identifier: Apache-2.0

// Certificates of our own: an authority, and leaves for the rendezvous server. EC P-256, SHA-256. Pure but
// for randomness.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::identity {

struct KeyPair {
  std::string cert_pem;
  std::string key_pem;  // never to be logged
  bool operator==(const KeyPair&) const = default;
};

// Valid from an hour before `now` (clocks differ) until `now + lifetime`.
Result<KeyPair> MakeAuthority(const std::string& name, kube::WallTime now, std::chrono::seconds lifetime);

// For a server under these DNS names and IP addresses. Ends with the authority at the latest.
Result<KeyPair> MakeLeaf(const KeyPair& authority, const std::vector<std::string>& names, kube::WallTime now,
                         std::chrono::seconds lifetime);

// Of the first certificate in the text. kInvalid when there is none.
Result<kube::WallTime> ExpiryOf(const std::string& cert_pem);

// Whether `leaf` is signed by `authority`, valid at `now`, good for all of `names`, and its key is the
// certificate's.
bool IsGoodLeaf(const KeyPair& leaf, const std::string& authority_pem, const std::vector<std::string>& names,
                kube::WallTime now);

}  // namespace ringmaster::identity
