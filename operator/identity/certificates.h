// SPDX-License-Identifier: Apache-2.0

// The rendezvous server's certificates and when to renew them. They are stored in one Secret. Workers get the
// bundle of authorities through the job's ConfigMap and read it again for every connection.
//
// An authority is replaced in two steps, so that a worker never sees a certificate from an authority that it
// does not know yet:
//  1. With a third of its life left, the next authority is created and added to the bundle.
//  2. With a sixth of its life left, the next authority signs, if an earlier call has put it into the bundle.
//     The old authority stays in the bundle until it expires.
// A leaf lives for a quarter of its authority's life.
//
// Pure, except for randomness in keys.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/identity/x509.h"

namespace ringmaster::identity {

struct Certificates {
  KeyPair authority;
  std::optional<KeyPair> next;    // the next authority, before it signs
  std::string old_authority_pem;  // empty: none
  KeyPair leaf;

  // All authorities that a worker must trust.
  std::string Bundle() const;
  bool operator==(const Certificates&) const = default;
};

// Returns the certificates that should be in use at `now`: `current` itself when nothing is due, and new ones
// when `current` is missing, unreadable, or its authority has expired.
Result<Certificates> Renew(const std::optional<Certificates>& current, const std::vector<std::string>& names,
                           std::chrono::seconds authority_life, kube::WallTime now);

// The time until Renew should be called again: well before one of the certificates expires, at most ten
// minutes.
Duration RenewalCheckDelay(const Certificates& certificates, kube::WallTime now);

// The data of the Secret (without base64), and back. nullopt: a member is missing or unreadable.
std::map<std::string, std::string> ToSecretData(const Certificates& certificates);
std::optional<Certificates> FromSecretData(const std::map<std::string, std::string>& data);

}  // namespace ringmaster::identity
