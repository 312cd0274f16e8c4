// The rendezvous server's papers and when they are renewed, as a pure function. They live in one Secret;
// workers are given the bundle of authorities (job's ConfigMap) and read it anew for every connection.
//
// An authority is renewed in two steps, so that nobody is ever shown a certificate whose authority they have
// not heard of:
//  1. with a third of its life left the next one is made, and told in the bundle;
//  2. with a sixth left the next one signs; the old one stays in the bundle until it ends.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/identity/certificate.h"

namespace ringmaster::identity {

inline constexpr std::chrono::hours kAuthorityLife{24 * 365};
inline constexpr std::chrono::hours kLeafLife{24 * 90};

struct Papers {
  KeyPair authority;
  std::optional<KeyPair> next;
  std::string old_authority_pem;  // empty: none
  KeyPair leaf;

  // All authorities that a worker should trust.
  std::string Bundle() const;
  bool operator==(const Papers&) const = default;
};

// The papers as they should be now: `current` itself when nothing is due. Starts afresh from nothing, from
// papers that cannot be read, and from an authority that has ended.
Result<Papers> Renewed(const std::optional<Papers>& current, const std::vector<std::string>& names,
                       kube::WallTime now);

// The data of the Secret (not base64), and back. nullopt: something is missing or unreadable.
std::map<std::string, std::string> ToSecretData(const Papers& papers);
std::optional<Papers> FromSecretData(const std::map<std::string, std::string>& data);

}  // namespace ringmaster::identity
