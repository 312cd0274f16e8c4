// SPDX-License-Identifier: Apache-2.0

// KubeBackend between versions and times: objects that a newer version wrote, and a server whose data was
// restored.
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "operator/kube/backend/kube_backend.h"
#include "tests/unit/kube_watch/backend_fixture.h"

namespace ringmaster::kube {
namespace {

TEST_F(BackendTest, ANewerStatusSurvivesAnOlderLeader) {
  Json job = Json::parse(kJobOnServer);
  job["spec"]["workers"]["spares"] = 2;
  job["status"] = {{"attempt", 1}, {"spares", {{"ready", 1}}}, {"ledger", {{"gangSize", 2}, {"spares", 1}}}};
  job_ = job.dump();
  Json written;
  on_put_ = [&](const HttpRequest& request) {
    written = Json::parse(request.body);
    return Response(200, R"({"metadata": {"resourceVersion": "8"}})");
  };
  std::vector<std::string> events;
  KubeBackend::Options options;
  options.context = [](const control::Key&) { return wiring::Context(); };
  options.on_event = [&](const control::Key&, const std::string& uid, const core::Event& event) {
    events.push_back(uid + " " + event.reason + " " + event.message);
  };
  Start(std::move(options));
  EXPECT_EQ(backend_->Observe(kKey)->observed.invalid, "");
  core::Status status = backend_->Observe(kKey)->observed.status;
  status.ledger.attempt = 2;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(WriteStatus(status).ok());
  EXPECT_EQ(written["status"]["attempt"], 2);
  EXPECT_EQ(written["status"]["spares"], Json({{"ready", 1}}));
  EXPECT_EQ(written["status"]["ledger"]["spares"], 1);
  ASSERT_EQ(events.size(), 1U) << "once";
  EXPECT_EQ(events[0].find("u UnknownFields"), 0U);
  EXPECT_NE(events[0].find("spec.workers.spares"), std::string::npos) << events[0];
}

// The data of etcd was restored from a backup: everything is older than what the view has seen.
TEST_F(BackendTest, AfterARestoreOfTheServersDataEverythingIsListedAgain) {
  KubeBackend::Options options;
  options.watch.backoff_first = milliseconds(2);
  options.watch.backoff_last = milliseconds(4);
  Start(std::move(options));
  Json newer = Json::parse(kJobOnServer);
  newer["metadata"]["resourceVersion"] = "50";
  newer["status"] = {{"attempt", 4}};
  Line("trainingjobs", "MODIFIED", newer.dump());
  Line("pods", "ADDED", PodOnServer("a-4-0", R"({"nodeName": "n", "containers": []})", 51));
  ASSERT_EQ(backend_->Observe(kKey)->observed.status.ledger.attempt, 4);
  ASSERT_EQ(backend_->Observe(kKey)->observed.pods.size(), 1U);

  std::promise<Status> read;
  backend_->ReadThrough(kKey, [&](Status status) { read.set_value(std::move(status)); });
  EXPECT_EQ(read.get_future().get().error().code, Code::kUnavailable);
  EXPECT_TRUE(Await([&] { return backend_->Observe(kKey)->job_revision == control::Revision{7}; }));
  EXPECT_TRUE(Await([&] { return backend_->Observe(kKey)->observed.pods.empty(); }));
  EXPECT_EQ(backend_->Observe(kKey)->observed.status.ledger.attempt, 0);
}

}  // namespace
}  // namespace ringmaster::kube
