// SPDX-License-Identifier: Apache-2.0

#include "operator/identity/x509.h"

#include <gtest/gtest.h>

namespace ringmaster::identity {
namespace {

using std::chrono::hours;

const kube::WallTime kNow{std::chrono::seconds(1'795'000'000)};
const std::vector<std::string> kNames = {"rendezvous.ringmaster-system.svc", "localhost", "127.0.0.1",
                                         "fd00::1"};

KeyPair Authority() { return MakeAuthority("ringmaster", kNow, hours(1000)).value(); }

TEST(Certificate, LeafIsValidForItsNames) {
  const KeyPair authority = Authority();
  const KeyPair leaf = MakeLeaf(authority, kNames, kNow, hours(24)).value();
  EXPECT_TRUE(IsGoodLeaf(leaf, authority.cert_pem, kNames, kNow));
  EXPECT_TRUE(IsGoodLeaf(leaf, authority.cert_pem, {"localhost"}, kNow));
  EXPECT_FALSE(IsGoodLeaf(leaf, authority.cert_pem, {"elsewhere"}, kNow));
  EXPECT_FALSE(IsGoodLeaf(leaf, authority.cert_pem, {"127.0.0.2"}, kNow));
}

TEST(Certificate, LeafExpires) {
  const KeyPair authority = Authority();
  const KeyPair leaf = MakeLeaf(authority, kNames, kNow, hours(24)).value();
  EXPECT_EQ(ExpiryOf(leaf.cert_pem).value(), kNow + hours(24));
  EXPECT_FALSE(IsGoodLeaf(leaf, authority.cert_pem, kNames, kNow + hours(25)));
  EXPECT_FALSE(IsGoodLeaf(leaf, authority.cert_pem, kNames, kNow - hours(2)));
  // Not after its authority.
  const KeyPair long_leaf = MakeLeaf(authority, kNames, kNow, hours(5000)).value();
  EXPECT_EQ(ExpiryOf(long_leaf.cert_pem).value(), kNow + hours(1000));
}

TEST(Certificate, AnotherAuthorityOfTheSameNameIsRejected) {
  const KeyPair leaf = MakeLeaf(Authority(), kNames, kNow, hours(24)).value();
  EXPECT_FALSE(IsGoodLeaf(leaf, Authority().cert_pem, kNames, kNow));
}

TEST(Certificate, KeyMustMatchTheCertificate) {
  const KeyPair authority = Authority();
  KeyPair leaf = MakeLeaf(authority, kNames, kNow, hours(24)).value();
  leaf.key_pem = MakeLeaf(authority, kNames, kNow, hours(24)).value().key_pem;
  EXPECT_FALSE(IsGoodLeaf(leaf, authority.cert_pem, kNames, kNow));
}

TEST(Certificate, RejectsInvalidPem) {
  EXPECT_FALSE(ExpiryOf("nonsense").ok());
  EXPECT_FALSE(MakeLeaf({"nonsense", "nonsense"}, kNames, kNow, hours(1)).ok());
  EXPECT_FALSE(MakeLeaf(Authority(), {}, kNow, hours(1)).ok());
  EXPECT_FALSE(IsGoodLeaf({"", ""}, "", kNames, kNow));
}

}  // namespace
}  // namespace ringmaster::identity
