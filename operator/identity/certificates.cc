// SPDX-License-Identifier: Apache-2.0

#include "operator/identity/certificates.h"

#include <algorithm>
#include <utility>

namespace ringmaster::identity {
namespace {

constexpr const char* kAuthorityName = "ringmaster rendezvous";

// Returns true if less than `life / share` is left.
bool IsShort(const std::string& cert_pem, std::chrono::seconds life, int share, kube::WallTime now) {
  const auto expiry = ExpiryOf(cert_pem);
  return !expiry.ok() || expiry.value() - now < life / share;
}

}  // namespace

std::string Certificates::Bundle() const {
  return authority.cert_pem + (next ? next->cert_pem : std::string()) + old_authority_pem;
}

Result<Certificates> Renew(const std::optional<Certificates>& current, const std::vector<std::string>& names,
                           std::chrono::seconds authority_life, kube::WallTime now) {
  const std::chrono::seconds leaf_life = authority_life / 4;
  Certificates certificates = current.value_or(Certificates());
  const auto expiry = ExpiryOf(certificates.authority.cert_pem);
  if (!expiry.ok() || expiry.value() <= now) {
    certificates = Certificates();
    RM_ASSIGN(certificates.authority, MakeAuthority(kAuthorityName, now, authority_life));
  }
  if (const auto old = ExpiryOf(certificates.old_authority_pem); !old.ok() || old.value() <= now)
    certificates.old_authority_pem.clear();
  const bool announced = certificates.next.has_value();
  if (!announced && IsShort(certificates.authority.cert_pem, authority_life, 3, now)) {
    RM_ASSIGN(certificates.next, MakeAuthority(kAuthorityName, now, authority_life));
  }
  if (announced && IsShort(certificates.authority.cert_pem, authority_life, 6, now)) {
    certificates.old_authority_pem = certificates.authority.cert_pem;
    certificates.authority = *std::exchange(certificates.next, std::nullopt);
  }
  // A leaf never outlives its authority, so near the authority's end every leaf is short. Renew it when it is
  // not valid any more, or when it nearly expires and the authority allows a longer one.
  const bool good = IsGoodLeaf(certificates.leaf, certificates.authority.cert_pem, names, now);
  const bool renewable = !IsShort(certificates.authority.cert_pem, leaf_life, 1, now);
  if (!good || (renewable && IsShort(certificates.leaf.cert_pem, leaf_life, 3, now))) {
    RM_ASSIGN(certificates.leaf, MakeLeaf(certificates.authority, names, now, leaf_life));
  }
  return certificates;
}

Duration RenewalCheckDelay(const Certificates& certificates, kube::WallTime now) {
  constexpr Duration kLongest = seconds(600);
  constexpr Duration kShortest = seconds(1);
  Duration pause = kLongest;
  for (const std::string* pem : {&certificates.authority.cert_pem, &certificates.leaf.cert_pem}) {
    const auto expiry = ExpiryOf(*pem);
    if (expiry.ok()) pause = std::min<Duration>(pause, (expiry.value() - now) / 8);
  }
  return std::max(pause, kShortest);
}

std::map<std::string, std::string> ToSecretData(const Certificates& certificates) {
  std::map<std::string, std::string> data = {{"ca.crt", certificates.authority.cert_pem},
                                             {"ca.key", certificates.authority.key_pem},
                                             {"tls.crt", certificates.leaf.cert_pem},
                                             {"tls.key", certificates.leaf.key_pem}};
  if (certificates.next) {
    data["next-ca.crt"] = certificates.next->cert_pem;
    data["next-ca.key"] = certificates.next->key_pem;
  }
  if (!certificates.old_authority_pem.empty()) data["old-ca.crt"] = certificates.old_authority_pem;
  return data;
}

std::optional<Certificates> FromSecretData(const std::map<std::string, std::string>& data) {
  const auto text = [&](const char* key) {
    const auto it = data.find(key);
    return it == data.end() ? std::string() : it->second;
  };
  Certificates certificates;
  certificates.authority = {text("ca.crt"), text("ca.key")};
  certificates.leaf = {text("tls.crt"), text("tls.key")};
  certificates.old_authority_pem = text("old-ca.crt");
  if (data.contains("next-ca.crt")) certificates.next = KeyPair{text("next-ca.crt"), text("next-ca.key")};
  if (!ExpiryOf(certificates.authority.cert_pem).ok() || certificates.authority.key_pem.empty())
    return std::nullopt;
  return certificates;
}

}  // namespace ringmaster::identity
