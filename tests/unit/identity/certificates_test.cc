// SPDX-License-Identifier: Apache-2.0

#include "operator/identity/certificates.h"

#include <gtest/gtest.h>

#include "tests/sanitized.h"

namespace ringmaster::identity {
namespace {

using std::chrono::hours;

const std::vector<std::string> kServerNames = {"ringmaster-rendezvous.ringmaster-system.svc"};
constexpr hours kYear{24 * 365};
const kube::WallTime kStart{std::chrono::seconds(1'795'000'000)};

TEST(Authority, SecretDataRoundTrip) {
  Certificates certificates = Renew(std::nullopt, kServerNames, kYear, kStart).value();
  EXPECT_EQ(FromSecretData(ToSecretData(certificates)), certificates);
  certificates.next = MakeAuthority("n", kStart, hours(5)).value();
  certificates.old_authority_pem = MakeAuthority("o", kStart, hours(5)).value().cert_pem;
  EXPECT_EQ(FromSecretData(ToSecretData(certificates)), certificates);
}

TEST(Authority, NothingDueChangesNothing) {
  const Certificates certificates = Renew(std::nullopt, kServerNames, kYear, kStart).value();
  EXPECT_EQ(Renew(certificates, kServerNames, kYear, kStart + hours(24 * 30)).value(), certificates);
}

TEST(Authority, NewNameGetsANewLeaf) {
  const Certificates certificates = Renew(std::nullopt, kServerNames, kYear, kStart).value();
  const Certificates renamed = Renew(certificates, {"other"}, kYear, kStart).value();
  EXPECT_EQ(renamed.authority, certificates.authority);
  EXPECT_TRUE(IsGoodLeaf(renamed.leaf, renamed.authority.cert_pem, {"other"}, kStart));
}

TEST(Authority, UnreadableCertificatesAreReplaced) {
  EXPECT_FALSE(FromSecretData({}).has_value());
  EXPECT_FALSE(FromSecretData({{"ca.crt", "nonsense"}, {"ca.key", "x"}}).has_value());
  Certificates certificates = Renew(std::nullopt, kServerNames, kYear, kStart).value();
  certificates.leaf = {"nonsense", "nonsense"};
  EXPECT_TRUE(IsGoodLeaf(Renew(certificates, kServerNames, kYear, kStart).value().leaf,
                         certificates.authority.cert_pem, kServerNames, kStart));
}

// Ten years, renewed every fifth day: an authority signs only after it was announced, and nothing in use
// expires.
TEST(Authority, AuthorityIsAnnouncedBeforeItSigns) {
  Certificates certificates = Renew(std::nullopt, kServerNames, kYear, kStart).value();
  int authorities = 1;
  constexpr int kYears = kSanitized ? 2 : 10;
  for (int day = 5; day <= 365 * kYears; day += 5) {
    const kube::WallTime now = kStart + hours(24 * day);
    const Certificates renewed = Renew(certificates, kServerNames, kYear, now).value();
    if (renewed.authority != certificates.authority) {
      ++authorities;
      // The bundle had it before it signed, and still has the old one.
      EXPECT_NE(certificates.Bundle().find(renewed.authority.cert_pem), std::string::npos) << "day " << day;
      EXPECT_NE(renewed.Bundle().find(certificates.authority.cert_pem), std::string::npos) << "day " << day;
    }
    EXPECT_TRUE(IsGoodLeaf(renewed.leaf, renewed.authority.cert_pem, kServerNames, now)) << "day " << day;
    // Valid for some time: a reader of today can use it tomorrow.
    EXPECT_TRUE(IsGoodLeaf(renewed.leaf, renewed.authority.cert_pem, kServerNames, now + hours(24)))
        << "day " << day;
    certificates = renewed;
  }
  EXPECT_GE(authorities, kYears);
  EXPECT_LE(authorities, kYears * 3 / 2);
}

// An operator that was down until the authority had nearly expired: the next one still signs only after it
// was announced.
TEST(Authority, NextAuthorityIsAnnouncedFirstHoweverLate) {
  const Certificates certificates = Renew(std::nullopt, kServerNames, kYear, kStart).value();
  const kube::WallTime late = kStart + kYear - hours(24);
  const Certificates announced = Renew(certificates, kServerNames, kYear, late).value();
  EXPECT_EQ(announced.authority, certificates.authority);
  ASSERT_TRUE(announced.next.has_value());
  const Certificates signing =
      Renew(announced, kServerNames, kYear, late + std::chrono::seconds(600)).value();
  EXPECT_EQ(signing.authority, *announced.next);
  EXPECT_EQ(signing.old_authority_pem, certificates.authority.cert_pem);
}

// A minute instead of a year, checked as often as the manager does.
TEST(Authority, ShortLivesScale) {
  const std::chrono::seconds life(60);
  Certificates certificates = Renew(std::nullopt, kServerNames, life, kStart).value();
  int authorities = 1;
  EXPECT_EQ(RenewalCheckDelay(Renew(std::nullopt, kServerNames, kYear, kStart).value(), kStart),
            std::chrono::seconds(600));
  for (kube::WallTime now = kStart; now < kStart + 5 * life;) {
    const auto second = (now - kStart).count();
    const Certificates renewed = Renew(certificates, kServerNames, life, now).value();
    EXPECT_TRUE(IsGoodLeaf(renewed.leaf, renewed.authority.cert_pem, kServerNames, now)) << second;
    EXPECT_NE(certificates.Bundle().find(renewed.authority.cert_pem), std::string::npos) << second;
    authorities += renewed.authority != certificates.authority ? 1 : 0;
    certificates = renewed;
    now += std::chrono::duration_cast<std::chrono::microseconds>(RenewalCheckDelay(certificates, now));
  }
  EXPECT_GE(authorities, 5);
  EXPECT_LE(authorities, 9);
}

}  // namespace
}  // namespace ringmaster::identity
