#include "operator/identity/authority.h"

#include <gtest/gtest.h>

namespace ringmaster::identity {
namespace {

using std::chrono::hours;

const std::vector<std::string> kServerNames = {"ringmaster-rendezvous.ringmaster-system.svc"};
const kube::WallTime kStart{std::chrono::seconds(1'795'000'000)};

TEST(Authority, ThereAndBack) {
  Papers papers = Renewed(std::nullopt, kServerNames, kStart).value();
  EXPECT_EQ(FromSecretData(ToSecretData(papers)), papers);
  papers.next = MakeAuthority("n", kStart, hours(5)).value();
  papers.old_authority_pem = MakeAuthority("o", kStart, hours(5)).value().cert_pem;
  EXPECT_EQ(FromSecretData(ToSecretData(papers)), papers);
}

TEST(Authority, NothingDueNothingDone) {
  const Papers papers = Renewed(std::nullopt, kServerNames, kStart).value();
  EXPECT_EQ(Renewed(papers, kServerNames, kStart + hours(24 * 30)).value(), papers);
}

TEST(Authority, AnotherNameNeedsAnotherLeaf) {
  const Papers papers = Renewed(std::nullopt, kServerNames, kStart).value();
  const Papers renamed = Renewed(papers, {"other"}, kStart).value();
  EXPECT_EQ(renamed.authority, papers.authority);
  EXPECT_TRUE(IsGoodLeaf(renamed.leaf, renamed.authority.cert_pem, {"other"}, kStart));
}

TEST(Authority, UnreadablePapersAreMadeAnew) {
  EXPECT_FALSE(FromSecretData({}).has_value());
  EXPECT_FALSE(FromSecretData({{"ca.crt", "nonsense"}, {"ca.key", "x"}}).has_value());
  Papers papers = Renewed(std::nullopt, kServerNames, kStart).value();
  papers.leaf = {"nonsense", "nonsense"};
  EXPECT_TRUE(IsGoodLeaf(Renewed(papers, kServerNames, kStart).value().leaf, papers.authority.cert_pem,
                         kServerNames, kStart));
}

// Ten years, looked after every fifth day: an authority signs only when it was told before, and nothing ever
// ends.
TEST(Authority, NobodyIsShownAnAuthorityTheyHaveNotHeardOf) {
  Papers papers = Renewed(std::nullopt, kServerNames, kStart).value();
  int authorities = 1;
  for (int day = 5; day <= 3650; day += 5) {
    const kube::WallTime now = kStart + hours(24 * day);
    const Papers renewed = Renewed(papers, kServerNames, now).value();
    if (renewed.authority != papers.authority) {
      ++authorities;
      // It was told in the bundle before it signed, and the old one is still told.
      EXPECT_NE(papers.Bundle().find(renewed.authority.cert_pem), std::string::npos) << "day " << day;
      EXPECT_NE(renewed.Bundle().find(papers.authority.cert_pem), std::string::npos) << "day " << day;
    }
    EXPECT_TRUE(IsGoodLeaf(renewed.leaf, renewed.authority.cert_pem, kServerNames, now)) << "day " << day;
    // Good for a while yet: whoever reads it now can use it tomorrow.
    EXPECT_TRUE(IsGoodLeaf(renewed.leaf, renewed.authority.cert_pem, kServerNames, now + hours(24)))
        << "day " << day;
    papers = renewed;
  }
  EXPECT_GE(authorities, 10);
  EXPECT_LE(authorities, 15);
}

}  // namespace
}  // namespace ringmaster::identity
