// SPDX-License-Identifier: Apache-2.0

#include "tests/conformance/test_cluster.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "api/crd.h"
#include "api/load.h"
#include "base/file.h"
#include "operator/kube/backend/resources.h"
#include "operator/kube/config.h"
#include "operator/kube/cpprest_http.h"
#include "tests/conformance/harness.h"

namespace ringmaster::conformance {
namespace {

const kube::Resource kCrds{"apiextensions.k8s.io", "v1", "customresourcedefinitions"};
const kube::Resource kAccounts{"", "v1", "serviceaccounts"};

// Returns the path of a kubeconfig. The cluster ends with this process.
std::string Kubeconfig() {
  static const std::string kPath = [] {
    if (const char* given = std::getenv("RINGMASTER_TEST_KUBECONFIG")) return std::string(given);
    FILE* pipe = ::popen("exec e2e/cluster/up --foreground --nodes 2 </dev/null", "r");
    CHECK(pipe != nullptr);
    std::string path;
    char line[4096];
    while (path.empty() && std::fgets(line, sizeof line, pipe) != nullptr) {
      const std::string text(line, std::char_traits<char>::length(line) - 1);
      if (text.starts_with("/") && ::access(text.c_str(), R_OK) == 0) path = text;
    }
    CHECK(!path.empty(), "e2e/cluster/up failed: run e2e/cluster/build and read its output");
    return path;
  }();
  return kPath;
}

// Marks the pods of rank kIgnoresSigterm, so that kwok delays their end.
class UnresponsivePods final : public kube::HttpClient {
 public:
  explicit UnresponsivePods(kube::HttpClient& http) : http_(http) {}
  void Send(kube::HttpRequest request, std::function<void(Result<kube::HttpResponse>)> done) override {
    if (request.method == "POST") {
      Json object = Json::parse(request.body, nullptr, false);
      const std::string rank = object.value("/metadata/labels/ringmaster.dev~1rank"_json_pointer, "");
      if (rank == std::to_string(kIgnoresSigterm)) {
        object["metadata"]["annotations"]["e2e.ringmaster.dev/stop-after-ms"] = "3600000";
        request.body = DumpJson(object);
      }
    }
    http_.Send(std::move(request), std::move(done));
  }
  std::unique_ptr<kube::HttpStream> Stream(kube::HttpRequest request,
                                           kube::StreamHandlers handlers) override {
    return http_.Stream(std::move(request), std::move(handlers));
  }

 private:
  kube::HttpClient& http_;
};

}  // namespace

bool Eventually(const std::function<bool()>& condition) {
  const Time limit = Now() + seconds(60);
  while (!condition()) {
    if (Now() >= limit) return false;
    ::poll(nullptr, 0, 20);
  }
  return true;
}

TestCluster::TestCluster() {
  kube::ConfigOptions where;
  where.kubeconfig_paths = {Kubeconfig()};
  auto config = kube::LoadConfig(where);
  CHECK(config.ok(), "{}", config.error().message);
  auto http = kube::MakeHttpClient(*config);
  CHECK(http.ok(), "{}", http.error().message);
  http_ = std::move(http).value();
  unresponsive_pods_ = std::make_unique<UnresponsivePods>(*http_);
  client_ = std::make_unique<kube::ApiClient>(*unresponsive_pods_);
  InstallDefinition();
  MakeNamespace();
}

TestCluster::~TestCluster() {
  // Delete the jobs first: the next test must not observe them, and the namespace ends later.
  for (const std::string& name : jobs_) {
    EXPECT_TRUE(Eventually([&] {
      const auto gone = Wait([&](auto done) { client_->Delete(kube::kJobs, space_, name, {}, done); });
      return !gone.ok() && gone.error().code == Code::kNotFound;
    }));
  }
  // Their pods are held, and no operator lets go of them.
  kube::ListOptions here;
  here.namespace_ = space_;
  std::vector<std::string> pods;
  EXPECT_TRUE(Wait([&](auto done) {
                client_->List(
                    kube::kPods, here,
                    [&pods](const Json& items) {
                      for (const Json& pod : items)
                        pods.push_back(pod["metadata"]["name"].get<std::string>());
                    },
                    done);
              }).ok());
  for (const std::string& name : pods) {
    const auto released = Wait([&](auto done) {
      client_->Patch(kube::kPods, space_, name, "", kube::ApiClient::PatchType::kMerge,
                     {{"metadata", {{"finalizers", nullptr}}}}, done);
    });
    EXPECT_TRUE(released.ok() || released.error().code == Code::kNotFound) << released.error().message;
  }
  // It may be ending already, at the request of a test.
  const auto gone = Wait([&](auto done) { client_->Delete(kube::kNamespaces, "", space_, {}, done); });
  EXPECT_TRUE(gone.ok() || gone.error().code == Code::kConflict || gone.error().code == Code::kNotFound)
      << gone.error().message;
  client_.reset();
  http_.reset();
}

kube::KubeBackend::Options TestCluster::BackendOptions() const {
  kube::KubeBackend::Options options;
  options.clock = kube::WallClock(Now(), kube::WallNow());
  options.context = [](const control::Key&) {
    wiring::Context context;
    context.worker_image = "ringmaster/worker:test";
    context.coordinator_address = "coordinator.test:4711";
    return context;
  };
  options.on_watch_failure = [](const kube::Resource& resource, const Error& error) {
    std::fprintf(stderr, "watch of %s: %s\n", resource.plural.c_str(), error.message.c_str());
  };
  return options;
}

api::TrainingJob TestCluster::Job(const std::string& name) const {
  const auto text = ReadFile("examples/fashion-mnist-mlp.yaml", size_t{1} << 20);
  CHECK(text.ok(), "{}", text.error().message);
  api::Loaded loaded = api::LoadYaml(*text, {{"metadata.name", name}, {"spec.workers.replicas", "1"}});
  CHECK(loaded.problems.empty(), "{}", loaded.problems.at(0).ToString());
  loaded.job.metadata.namespace_ = space_;
  loaded.job.spec.workers.min.reset();
  loaded.job.spec.workers.max.reset();
  return loaded.job;
}

control::Key TestCluster::Submit(const api::TrainingJob& job) {
  const auto made = Create(kube::kJobs, api::ToJson(job));
  CHECK(made.ok(), "{}", made.error().message);
  jobs_.push_back(job.metadata.name);
  return {space_, job.metadata.name};
}

Result<Json> TestCluster::Get(const kube::Resource& resource, const std::string& name) {
  return Wait([&](auto done) { client_->Get(resource, space_, name, done); });
}

Result<Json> TestCluster::Create(const kube::Resource& resource, const Json& object) {
  return Wait([&](auto done) { client_->Create(resource, space_, object, done); });
}

void TestCluster::InstallDefinition() {
  const auto made =
      Wait([&](auto done) { client_->Create(kCrds, "", api::CustomResourceDefinition(), done); });
  CHECK(made.ok() || made.error().code == Code::kAlreadyExists, "{}", made.error().message);
  const bool established = Eventually([&] {
    return Wait([&](auto done) {
             client_->List(
                 kube::kJobs, {}, [](const Json&) {}, done);
           })
        .ok();
  });
  CHECK(established, "the CustomResourceDefinition was not established");
}

void TestCluster::InstallKueue() {
  const auto define = [&](const kube::Resource& resource, const char* kind, const char* scope) {
    const Json schema = {
        {"openAPIV3Schema", {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}}}};
    Json version = {{"name", resource.version}, {"served", true}, {"storage", true}, {"schema", schema}};
    if (resource == kube::kWorkloads) version["subresources"] = {{"status", Json::object()}};
    const Json definition = {{"apiVersion", "apiextensions.k8s.io/v1"},
                             {"kind", "CustomResourceDefinition"},
                             {"metadata",
                              {{"name", resource.plural + "." + resource.group},
                               {"annotations", {{"api-approved.kubernetes.io", "unapproved, for a test"}}}}},
                             {"spec",
                              {{"group", resource.group},
                               {"scope", scope},
                               {"names", {{"kind", kind}, {"plural", resource.plural}}},
                               {"versions", Json::array({version})}}}};
    const auto made = Wait([&](auto done) { client_->Create(kCrds, "", definition, done); });
    CHECK(made.ok() || made.error().code == Code::kAlreadyExists, "{}", made.error().message);
  };
  define(kube::kFlavors, "ResourceFlavor", "Cluster");
  define(kube::kWorkloadPriorityClasses, "WorkloadPriorityClass", "Cluster");
  define(kube::kLocalQueues, "LocalQueue", "Namespaced");
  define(kube::kWorkloads, "Workload", "Namespaced");
}

void TestCluster::MakeNamespace() {
  static int number = 0;
  space_ = fmt::format("conformance-{}-{}", ::getpid(), ++number);
  const auto made = Wait([&](auto done) {
    client_->Create(kube::kNamespaces, "",
                    {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", space_}}}}, done);
  });
  CHECK(made.ok(), "{}", made.error().message);
  CHECK(Eventually([&] { return Get(kAccounts, "default").ok(); }), "no default service account");
}

}  // namespace ringmaster::conformance
