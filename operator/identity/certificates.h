// SPDX-License-Identifier: Apache-2.0

// The rendezvous server's certificates and when they are renewed, as a pure function. They live in one
// Secret; workers are given the bundle of authorities (job's ConfigMap) and read it anew for every
// connection.
//
// An authority is renewed in two steps, so that nobody is ever shown a certificate whose authority they have
// not heard of:
//  1. with a third of its life left the next one is made, and told in the bundle;
//  2. with a sixth left the next one signs, if an earlier look has told it; the old one stays in the bundle
//     until it ends.
// Leaves live for a quarter of their authority's time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/identity/x509.h"

namespace ringmaster::identity {

struct Certificates {
  KeyPair authority;
  std::optional<KeyPair> next;
  std::string old_authority_pem;  // empty: none
  KeyPair leaf;

  // All authorities that a worker should trust.
  std::string Bundle() const;
  bool operator==(const Certificates&) const = default;
};

// The certificates as they should be now: `current` itself when nothing is due. Starts afresh from nothing,
// from certificates that cannot be read, and from an authority that has ended.
Result<Certificates> Renew(const std::optional<Certificates>& current, const std::vector<std::string>& names,
                           std::chrono::seconds authority_life, kube::WallTime now);

// When to look at them again: well before anything of theirs ends, and every ten minutes at least.
Duration RenewalCheckDelay(const Certificates& certificates, kube::WallTime now);

// The data of the Secret (not base64), and back. nullopt: something is missing or unreadable.
std::map<std::string, std::string> ToSecretData(const Certificates& certificates);
std::optional<Certificates> FromSecretData(const std::map<std::string, std::string>& data);

}  // namespace ringmaster::identity
