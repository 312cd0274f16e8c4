// SPDX-License-Identifier: Apache-2.0

#include "operator/identity/authority.h"

#include <algorithm>
#include <utility>

namespace ringmaster::identity {
namespace {

constexpr const char* kAuthorityName = "ringmaster rendezvous";

// Whether less than `share` (as a divisor) of `life` is left.
bool IsShort(const std::string& cert_pem, std::chrono::seconds life, int share, kube::WallTime now) {
  const auto expiry = ExpiryOf(cert_pem);
  return !expiry.ok() || expiry.value() - now < life / share;
}

}  // namespace

std::string Papers::Bundle() const {
  return authority.cert_pem + (next ? next->cert_pem : std::string()) + old_authority_pem;
}

Result<Papers> Renewed(const std::optional<Papers>& current, const std::vector<std::string>& names,
                       std::chrono::seconds authority_life, kube::WallTime now) {
  const std::chrono::seconds leaf_life = authority_life / 4;
  Papers papers = current.value_or(Papers());
  const auto expiry = ExpiryOf(papers.authority.cert_pem);
  if (!expiry.ok() || expiry.value() <= now) {
    papers = Papers();
    RM_ASSIGN(papers.authority, MakeAuthority(kAuthorityName, now, authority_life));
  }
  if (const auto old = ExpiryOf(papers.old_authority_pem); !old.ok() || old.value() <= now)
    papers.old_authority_pem.clear();
  const bool told = papers.next.has_value();
  if (!told && IsShort(papers.authority.cert_pem, authority_life, 3, now)) {
    RM_ASSIGN(papers.next, MakeAuthority(kAuthorityName, now, authority_life));
  }
  if (told && IsShort(papers.authority.cert_pem, authority_life, 6, now)) {
    papers.old_authority_pem = papers.authority.cert_pem;
    papers.authority = *std::exchange(papers.next, std::nullopt);
  }
  // A leaf never outlives its authority, so near the authority's end it is short for good: it is renewed when
  // it is not valid any more, or its own life is nearly over while a longer one can be had.
  const bool good = IsGoodLeaf(papers.leaf, papers.authority.cert_pem, names, now);
  const bool renewable = !IsShort(papers.authority.cert_pem, leaf_life, 1, now);
  if (!good || (renewable && IsShort(papers.leaf.cert_pem, leaf_life, 3, now))) {
    RM_ASSIGN(papers.leaf, MakeLeaf(papers.authority, names, now, leaf_life));
  }
  return papers;
}

Duration LookAgainIn(const Papers& papers, kube::WallTime now) {
  constexpr Duration kLongest = seconds(600);
  constexpr Duration kShortest = seconds(1);
  Duration pause = kLongest;
  for (const std::string* pem : {&papers.authority.cert_pem, &papers.leaf.cert_pem}) {
    const auto expiry = ExpiryOf(*pem);
    if (expiry.ok()) pause = std::min<Duration>(pause, (expiry.value() - now) / 8);
  }
  return std::max(pause, kShortest);
}

std::map<std::string, std::string> ToSecretData(const Papers& papers) {
  std::map<std::string, std::string> data = {{"ca.crt", papers.authority.cert_pem},
                                             {"ca.key", papers.authority.key_pem},
                                             {"tls.crt", papers.leaf.cert_pem},
                                             {"tls.key", papers.leaf.key_pem}};
  if (papers.next) {
    data["next-ca.crt"] = papers.next->cert_pem;
    data["next-ca.key"] = papers.next->key_pem;
  }
  if (!papers.old_authority_pem.empty()) data["old-ca.crt"] = papers.old_authority_pem;
  return data;
}

std::optional<Papers> FromSecretData(const std::map<std::string, std::string>& data) {
  const auto text = [&](const char* key) {
    const auto it = data.find(key);
    return it == data.end() ? std::string() : it->second;
  };
  Papers papers;
  papers.authority = {text("ca.crt"), text("ca.key")};
  papers.leaf = {text("tls.crt"), text("tls.key")};
  papers.old_authority_pem = text("old-ca.crt");
  if (data.contains("next-ca.crt")) papers.next = KeyPair{text("next-ca.crt"), text("next-ca.key")};
  if (!ExpiryOf(papers.authority.cert_pem).ok() || papers.authority.key_pem.empty()) return std::nullopt;
  return papers;
}

}  // namespace ringmaster::identity
