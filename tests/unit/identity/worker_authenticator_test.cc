// SPDX-License-Identifier: Apache-2.0

// The contents of a TokenReview that admit a Hello. e2e/operator checks the API server's real responses.
#include "operator/identity/worker_authenticator.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/unit/kube_client/held_requests.h"

namespace ringmaster::identity {
namespace {

Json Review() {
  return Json::parse(R"({"status": {"authenticated": true, "audiences": ["ringmaster.dev"], "user": {
    "username": "system:serviceaccount:team-a:default",
    "extra": {"authentication.kubernetes.io/pod-name": ["gpt-3-0"], "authentication.kubernetes.io/pod-uid": ["u-1"]}}}})");
}

const PodIdentity kPod{"team-a", "gpt-3-0", "u-1"};
rendezvous::Hello Hello() { return {"team-a/gpt", "gpt-3-0", "agent", "", 3}; }

TEST(WorkerAuthenticator, ReadsThePodIdentity) { EXPECT_EQ(IdentityOf(Review()).value(), kPod); }

TEST(WorkerAuthenticator, RejectsIncompleteReviews) {
  const std::vector<std::pair<std::string, Json>> patches = {
      {"not valid", {{"status", {{"authenticated", false}}}}},
      {"not for the audience",
       {{"status", {{"audiences", Json::array({"https://kubernetes.default.svc"})}}}}},
      {"not for the audience", {{"status", {{"audiences", nullptr}}}}},
      {"does not belong to a service account", {{"status", {{"user", {{"username", "admin"}}}}}}},
      {"not bound to a pod",
       {{"status", {{"user", {{"extra", {{"authentication.kubernetes.io/pod-uid", nullptr}}}}}}}}},
      {"not bound to a pod", {{"status", {{"user", {{"username", "system:serviceaccount:"}}}}}}},
      {"has no status", {{"status", nullptr}}},
  };
  for (const auto& [why, patch] : patches) {
    Json review = Review();
    review.merge_patch(patch);
    const auto identity = IdentityOf(review);
    ASSERT_FALSE(identity.ok()) << patch.dump();
    EXPECT_EQ(identity.error().code, Code::kForbidden);
    EXPECT_NE(identity.error().message.find(why), std::string::npos) << identity.error().message;
  }
  for (const char* text :
       {"{}", "[]", "null", "1", R"({"status": 1})", R"({"status": {"authenticated": "yes"}})"})
    EXPECT_FALSE(IdentityOf(Json::parse(text)).ok()) << text;
}

TEST(WorkerAuthenticator, TokenMustMatchThePod) {
  const CheckWorker yes = [](const auto&, const auto&, const auto&, int64_t) { return Ok(); };
  EXPECT_TRUE(CheckHello(kPod, Hello(), yes).ok());
  rendezvous::Hello other = Hello();
  other.pod = "gpt-3-1";
  EXPECT_FALSE(CheckHello(kPod, other, yes).ok());
  other = Hello();
  other.job = "team-b/gpt";
  EXPECT_FALSE(CheckHello(kPod, other, yes).ok());
  other.job = "team-a";
  EXPECT_TRUE(CheckHello(kPod, other, yes).ok());  // the view checks the job; see below
  other.job = "team-ab/gpt";
  EXPECT_FALSE(CheckHello(kPod, other, yes).ok());
}

TEST(WorkerAuthenticator, ViewDecidesAboutWorkers) {
  const CheckWorker only = [](const std::string& job, const std::string& pod, const std::string& uid,
                              int64_t attempt) {
    if (job == "team-a/gpt" && pod == "gpt-3-0" && uid == "u-1" && attempt == 3) return Ok();
    return Status(Error{Code::kForbidden, "not a worker of it"});
  };
  EXPECT_TRUE(CheckHello(kPod, Hello(), only).ok());
  rendezvous::Hello other = Hello();
  other.attempt = 2;
  EXPECT_FALSE(CheckHello(kPod, other, only).ok());
  EXPECT_FALSE(CheckHello({"team-a", "gpt-3-0", "u-2"}, Hello(), only).ok());
}

// The leader may end while the API server checks a token.
TEST(WorkerAuthenticator, AnAnswerMayComeAfterItsEnd) {
  kube::HeldRequests http;
  kube::ApiClient api(http);
  int checked = 0;
  std::vector<Status> answers;
  rendezvous::Hello hello = Hello();
  hello.secret = "t0k";
  const auto authenticate = [&](const WorkerAuthenticator& authenticator) {
    authenticator.Authenticate(hello, [&](Status status) { answers.push_back(std::move(status)); });
    ASSERT_EQ(http.waiting.size(), 1U);
  };
  // The check belongs to the leader, which frees it with the authenticator.
  auto leader = std::make_unique<int*>(&checked);
  auto authenticator = std::make_unique<WorkerAuthenticator>(
      api, [leader = leader.get()](const auto&, const auto&, const auto&, int64_t) {
        ++**leader;
        return Ok();
      });
  authenticate(*authenticator);
  http.Answer(Review().dump());
  EXPECT_EQ(checked, 1);
  EXPECT_TRUE(answers.at(0).ok());
  authenticate(*authenticator);
  authenticator.reset();
  leader.reset();
  http.Answer(Review().dump());
  EXPECT_EQ(checked, 1);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[1].error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace ringmaster::identity
