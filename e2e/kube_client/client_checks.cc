// SPDX-License-Identifier: Apache-2.0

// The client of operator/kube with a real API server. client_test.py starts one and runs this.
//
// Environment: KUBECONFIG of an administrator, POWERLESS_KUBECONFIG of a user without rights. Commands:
// RESTART restarts the API server, COMPACT makes it and etcd drop their history.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <set>

#include "base/fd.h"
#include "base/file.h"
#include "operator/kube/api_client.h"
#include "operator/kube/config.h"
#include "operator/kube/cpprest_http.h"
#include "operator/kube/token_file.h"
#include "tests/unit/kube_client/waiting.h"

namespace ringmaster::kube {
namespace {

using ::testing::HasSubstr;

const Resource kConfigMaps{"", "v1", "configmaps"};
const Resource kNamespaces{"", "v1", "namespaces"};
const Resource kPods{"", "v1", "pods"};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  CHECK(value != nullptr, "{} is not set: client_test.py runs this", name);
  return value;
}

Json ConfigMap(const std::string& name, const Json& data = Json::object()) {
  return {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", name}}}, {"data", data}};
}

class Server : public ::testing::Test {
 protected:
  Server() : Server(LoadConfig({.kubeconfig_paths = {Variable("KUBECONFIG")}}).value()) {}
  explicit Server(ClientConfig config)
      : config_(std::move(config)), http_(MakeHttpClient(config_).value()), api_(*http_) {}

  // Each test uses a separate namespace.
  void SetUp() override {
    namespace_ = fmt::format("client-{}-{}", ::getpid(), ++count_);
    const auto made = Call([&](auto done) {
      api_.Create(kNamespaces, "",
                  {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", namespace_}}}}, done);
    });
    ASSERT_TRUE(made.ok()) << made.error().message;
  }
  void TearDown() override {
    (void)Call([&](auto done) { api_.Delete(kNamespaces, "", namespace_, {}, done); });
  }

  static Result<Json> Call(const std::function<void(ApiClient::Done)>& ask) {
    auto answer = std::make_shared<Promise<Result<Json>>>();
    ask([answer](Result<Json> result) { answer->Set(std::move(result)); });
    return answer->Get();
  }
  Result<Json> Create(const Json& object) {
    return Call([&](auto done) { api_.Create(kConfigMaps, namespace_, object, done); });
  }
  void CreateMany(int count) {
    std::atomic<int> failed{0}, left{count};
    Promise<bool> all;
    for (int i = 0; i < count; ++i) {
      Json object = ConfigMap(fmt::format("c-{}", i));
      object["metadata"]["labels"] = {{"half", i % 2 == 0 ? "even" : "odd"}};
      api_.Create(kConfigMaps, namespace_, object, [&](Result<Json> result) {
        if (!result.ok()) ++failed;
        if (--left == 0) all.Set(true);
      });
    }
    all.Get();
    ASSERT_EQ(failed, 0);
  }
  Result<Json> Get(const std::string& name) {
    return Call([&](auto done) { api_.Get(kConfigMaps, namespace_, name, done); });
  }
  Result<Json> Delete(const std::string& name, const DeleteOptions& options = {}) {
    return Call([&](auto done) { api_.Delete(kConfigMaps, namespace_, name, options, done); });
  }
  Result<Json> Apply(const Json& object, bool force) {
    return Call([&](auto done) {
      api_.Apply(kConfigMaps, namespace_, object["metadata"]["name"], "", object, force, done);
    });
  }
  Result<Json> Patch(ApiClient::PatchType type, const Json& body) {
    return Call([&](auto done) { api_.Patch(kConfigMaps, namespace_, "a", "", type, body, done); });
  }

  const ClientConfig config_;
  const std::unique_ptr<HttpClient> http_;
  ApiClient api_;
  std::string namespace_;

 private:
  static inline int count_ = 0;
};

TEST_F(Server, ReadsTheServerVersion) {
  const auto version = Call([&](auto done) { api_.Raw("/version", done); });
  ASSERT_TRUE(version.ok()) << version.error().message;
  EXPECT_EQ((*version)["major"], "1");
}

TEST_F(Server, CreatesReadsAndDeletes) {
  const auto made = Create(ConfigMap("a", {{"k", "grüße"}}));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(Create(ConfigMap("a")).error().code, Code::kAlreadyExists);
  EXPECT_EQ((*Get("a"))["data"]["k"], "grüße");
  EXPECT_EQ(Delete("a", {.uid = "another"}).error().code, Code::kConflict);
  EXPECT_TRUE(Delete("a", {.uid = (*made)["metadata"]["uid"]}).ok());
  const auto gone = Get("a");
  EXPECT_EQ(gone.error(),
            (Error{Code::kNotFound, "GET configmaps " + namespace_ + "/a: configmaps \"a\" not found"}));
  EXPECT_EQ(Delete("a").error().code, Code::kNotFound);
}

TEST_F(Server, InvalidObjectErrorNamesTheField) {
  const auto refused = Create(ConfigMap("Not A Name"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_THAT(refused.error().message, HasSubstr("metadata.name"));
  EXPECT_EQ(Create({{"kind", 3}}).error().code, Code::kInvalid);
}

TEST_F(Server, AppliesAndPatches) {
  ASSERT_TRUE(Apply(ConfigMap("a", {{"one", "1"}}), false).ok());
  const auto patched = Patch(ApiClient::PatchType::kMerge, {{"data", {{"two", "2"}}}});
  ASSERT_TRUE(patched.ok()) << patched.error().message;
  EXPECT_EQ((*Get("a"))["data"], (Json{{"one", "1"}, {"two", "2"}}));
  EXPECT_EQ((*patched)["metadata"]["resourceVersion"], (*Get("a"))["metadata"]["resourceVersion"]);
  EXPECT_FALSE(patched->contains("data")) << "who wrote it knows it";
  const auto stale = Patch(ApiClient::PatchType::kMerge,
                           {{"metadata", {{"resourceVersion", "1"}}}, {"data", {{"two", "3"}}}});
  EXPECT_EQ(stale.error().code, Code::kConflict) << stale.error().message;
  ASSERT_TRUE(
      Patch(ApiClient::PatchType::kJson, {{{"op", "add"}, {"path", "/data/three"}, {"value", "3"}}}).ok());
  ASSERT_TRUE(Patch(ApiClient::PatchType::kStrategic, {{"data", {{"four", "4"}}}}).ok());
  EXPECT_EQ((*Get("a"))["data"].size(), 4u);
  // Fields that we applied before and leave out now are removed; fields of other writers stay.
  ASSERT_TRUE(Apply(ConfigMap("a", {{"five", "5"}}), true).ok());
  EXPECT_FALSE((*Get("a"))["data"].contains("one"));
  EXPECT_TRUE((*Get("a"))["data"].contains("two"));
}

TEST_F(Server, UpdateRequiresTheReadRevision) {
  Json object = Create(ConfigMap("a")).value();
  const auto update = [&](const Json& value) {
    return Call([&](auto done) { api_.Update(kConfigMaps, namespace_, "a", "", value, done); });
  };
  Json newer = object;
  newer["data"] = {{"k", "1"}};
  ASSERT_TRUE(update(newer).ok());
  const auto stale = update(object);
  EXPECT_EQ(stale.error().code, Code::kConflict);
  EXPECT_THAT(stale.error().message, HasSubstr("object has been modified"));
}

TEST_F(Server, LogsWarnings) {
  Json pod = {{"apiVersion", "v1"},
              {"kind", "Pod"},
              {"metadata", {{"name", "a"}}},
              {"spec", {{"containers", {{{"name", "m"}, {"image", "none"}, {"imag", "x"}}}}}}};
  ::testing::internal::CaptureStderr();
  (void)Call([&](auto done) { api_.Create(kPods, namespace_, pod, done); });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("unknown field"));
}

// ConfigMaps of CreateMany, without the one that Kubernetes adds to every namespace.
bool IsOurs(const Json& item) {
  return item["metadata"]["name"].get_ref<const std::string&>().starts_with("c-");
}

TEST_F(Server, ListsInPages) {
  constexpr int kObjects = 1201;
  CreateMany(kObjects);
  const auto list = [&](ListOptions options, int& pages, std::set<std::string>& names, std::string& kind) {
    options.namespace_ = namespace_;
    return Call([&](auto done) {
      api_.List(
          kConfigMaps, options,
          [&](Json items) {
            ++pages;
            for (const Json& item : items) {
              if (IsOurs(item)) names.insert(item["metadata"]["name"]);
              kind = item.value("kind", "");
            }
          },
          done);
    });
  };
  int pages = 0;
  std::set<std::string> names;
  std::string kind;
  const auto whole = list({}, pages, names, kind);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(names.size(), size_t{kObjects});
  EXPECT_TRUE((*whole)["resourceVersion"].is_string());
  pages = 0;
  names.clear();
  ASSERT_TRUE(
      list({.label_selector = "half in (odd),half!=x", .metadata_only = true}, pages, names, kind).ok());
  EXPECT_EQ(names.size(), static_cast<size_t>(kObjects / 2));
  EXPECT_EQ(kind, "PartialObjectMetadata");
}

TEST_F(Server, Watches) {
  const auto listed = Call([&](auto done) {
    api_.List(
        kConfigMaps, {.namespace_ = namespace_}, [](Json) {}, done);
  });
  const std::string version = (*listed)["resourceVersion"];
  Record record;
  Promise<Status> end;
  const auto watch = [&](const std::string& from, int32_t limit) {
    return api_.Watch(kConfigMaps,
                      {.namespace_ = namespace_, .resource_version = from, .timeout_seconds = limit}, true,
                      record.Handlers().on_line, [&](Status status) { end.Set(status); });
  };
  {
    const auto stream = watch(version, 300);
    ASSERT_TRUE(Create(ConfigMap("w")).ok());
    ASSERT_TRUE(Apply(ConfigMap("w", {{"k", "v"}}), true).ok());
    ASSERT_TRUE(Delete("w").ok());
    std::vector<std::string> types;
    // kube-root-ca.crt may appear in between.
    for (size_t seen = 0; types.size() < 3; ++seen) {
      ASSERT_TRUE(record.WaitForLines(seen + 1));
      const Json event = Json::parse(record.lines()[seen]);
      if (event["object"]["metadata"].value("name", "") == "w") types.push_back(event["type"]);
    }
    EXPECT_THAT(types, ::testing::ElementsAre("ADDED", "MODIFIED", "DELETED"));
  }
  EXPECT_EQ(end.times(), 0);
  const auto short_one = watch(version, 1);
  EXPECT_TRUE(end.Get().ok()) << end.Get().error().message;
}

TEST_F(Server, RightsDecideBetweenUsers) {
  const ClientConfig powerless = LoadConfig({.kubeconfig_paths = {Variable("POWERLESS_KUBECONFIG")}}).value();
  const auto http = MakeHttpClient(powerless).value();
  ApiClient api(*http);
  const auto refused = Call([&](auto done) { api.Create(kConfigMaps, namespace_, ConfigMap("a"), done); });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kForbidden);
  EXPECT_THAT(refused.error().message, HasSubstr("cannot create resource \"configmaps\""));
  Promise<Status> end;
  const auto stream = api.Watch(
      kConfigMaps, {}, true, [](std::string_view) {}, [&](Status s) { end.Set(s); });
  EXPECT_EQ(end.Get().error().code, Code::kForbidden);
}

TEST_F(Server, AuthenticatesByATokenFile) {
  const Resource accounts{"", "v1", "serviceaccounts"};
  ASSERT_TRUE(Call([&](auto done) {
                api_.Create(
                    accounts, namespace_,
                    {{"apiVersion", "v1"}, {"kind", "ServiceAccount"}, {"metadata", {{"name", "me"}}}}, done);
              }).ok());
  auto http_response = std::make_shared<Promise<Result<HttpResponse>>>();
  http_->Send({.method = "POST",
               .target = accounts.Path(namespace_, "me", "token"),
               .body = R"({"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}})"},
              [http_response](Result<HttpResponse> result) { http_response->Set(std::move(result)); });
  const auto answer = http_response->Get();
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  const std::string token = Json::parse(answer->body)["status"]["token"];
  char path[] = "/tmp/ringmaster-token-XXXXXX";
  ASSERT_TRUE(Fd(::mkstemp(path)).valid());
  ASSERT_TRUE(WriteFileAtomic(path, "not-a-token").ok());

  ClientConfig config;
  config.server = config_.server;
  config.ca_pem = config_.ca_pem;
  config.token = MakeTokenFile(path, seconds(3600));
  const auto http = MakeHttpClient(config).value();
  ApiClient api(*http);
  const auto who = [&] {
    return Call([&](auto done) {
      api.Create({"authentication.k8s.io", "v1", "selfsubjectreviews"}, "",
                 {{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "SelfSubjectReview"}}, done);
    });
  };
  EXPECT_EQ(who().error().code, Code::kForbidden);
  ASSERT_TRUE(WriteFileAtomic(path, token + "\n").ok());
  const auto known = who();
  ASSERT_TRUE(known.ok()) << known.error().message;
  EXPECT_EQ((*known)["status"]["userInfo"]["username"], "system:serviceaccount:" + namespace_ + ":me");
  ::unlink(path);
}

// Compacts the server's history between the first and the second page of a list. `write` runs before that:
// the newest revision is never compacted, and it may be the list's.
class Forgetful final : public HttpClient {
 public:
  Forgetful(HttpClient& http, std::function<void()> write) : http_(http), write_(std::move(write)) {}
  void Send(HttpRequest request, std::function<void(Result<HttpResponse>)> done) override {
    if (request.target.find("continue=") != std::string::npos && !std::exchange(forgot_, true)) {
      write_();
      EXPECT_EQ(std::system(Variable("COMPACT").c_str()), 0);
    }
    http_.Send(std::move(request), std::move(done));
  }
  std::unique_ptr<HttpStream> Stream(HttpRequest request, StreamHandlers handlers) override {
    return http_.Stream(std::move(request), std::move(handlers));
  }
  bool forgot() const { return forgot_; }

 private:
  HttpClient& http_;
  const std::function<void()> write_;
  bool forgot_ = false;
};

TEST_F(Server, ListsAgainAfterCompaction) {
  constexpr int kObjects = 600;
  CreateMany(kObjects);
  const std::string old = (*Get("c-0"))["metadata"]["resourceVersion"];
  Forgetful forgetful(*http_, [this] {
    EXPECT_TRUE(Call([&](auto done) {
                  api_.Patch(kConfigMaps, namespace_, "c-0", "", ApiClient::PatchType::kMerge,
                             {{"data", {{"written", "later"}}}}, done);
                }).ok());
  });
  ApiClient api(forgetful);
  std::set<std::string> names;
  int restarts = 0;
  const auto listed = Call([&](auto done) {
    api.List(
        kConfigMaps, {.namespace_ = namespace_},
        [&](Json items) {
          if (!items.is_array()) {
            ++restarts;
            names.clear();
          } else {
            for (const Json& item : items)
              if (IsOurs(item)) names.insert(item["metadata"]["name"]);
          }
        },
        done);
  });
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  EXPECT_TRUE(forgetful.forgot());
  EXPECT_EQ(restarts, 1);
  EXPECT_EQ(names.size(), size_t{kObjects});

  // A watch from before gets 410, as its status or in its first line.
  Record record;
  Promise<Status> end;
  const auto stream = api.Watch(kConfigMaps, {.namespace_ = namespace_, .resource_version = old}, true,
                                record.Handlers().on_line, [&](Status status) { end.Set(status); });
  const Status ended = end.Get();
  if (ended.ok()) {
    ASSERT_EQ(record.lines().size(), 1u);
    EXPECT_EQ(Json::parse(record.lines()[0])["object"]["code"], 410) << record.lines()[0];
  } else {
    EXPECT_EQ(ended.error().code, Code::kGone) << ended.error().message;
  }
}

TEST_F(Server, SurvivesARestart) {
  Record record;
  Promise<Status> end;
  const auto stream = api_.Watch(kConfigMaps, {.namespace_ = namespace_}, true, record.Handlers().on_line,
                                 [&](Status status) { end.Set(status); });
  // Fills the pool with connections that the restart closes.
  std::vector<Promise<Result<Json>>> before(20);
  for (auto& one : before)
    api_.Get(kConfigMaps, namespace_, "x", [&one](Result<Json> result) { one.Set(std::move(result)); });
  for (auto& one : before) EXPECT_EQ(one.Get().error().code, Code::kNotFound);
  ASSERT_EQ(std::system(Variable("RESTART").c_str()), 0);
  (void)end.Get();  // any end is fine
  for (int i = 0; i < 20; ++i) {
    const auto made = Create(ConfigMap(fmt::format("after-{}", i)));
    EXPECT_TRUE(made.ok()) << i << ": " << made.error().message;
  }
}

}  // namespace
}  // namespace ringmaster::kube
