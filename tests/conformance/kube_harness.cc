// The kube backend under the suite, against a real API server with fake nodes (e2e/cluster): its own cluster
// for the whole run, or the one that RINGMASTER_TEST_KUBECONFIG names; a namespace for each test. Pods end
// because this file says so to the API server, as a kubelet would.
#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <mutex>
#include <set>

#include "api/crd.h"
#include "api/load.h"
#include "base/file.h"
#include "base/time.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/resources.h"
#include "operator/kube/config.h"
#include "operator/kube/cpprest_http.h"
#include "operator/wiring/names.h"
#include "tests/conformance/harness.h"

namespace ringmaster::conformance {
namespace {

using kube::ApiClient;

const kube::Resource kCrds{"apiextensions.k8s.io", "v1", "customresourcedefinitions"};
const kube::Resource kAccounts{"", "v1", "serviceaccounts"};

// The path of a kubeconfig. The cluster ends with this process.
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
    CHECK(!path.empty(), "e2e/cluster/up did not come up: run e2e/cluster/build, and see what it says");
    return path;
  }();
  return kPath;
}

// A program that ignores SIGTERM, as kwok plays it.
class DeafPods final : public kube::HttpClient {
 public:
  explicit DeafPods(kube::HttpClient& http) : http_(http) {}
  void Send(kube::HttpRequest request, std::function<void(Result<kube::HttpResponse>)> done) override {
    if (request.method == "POST") {
      Json object = Json::parse(request.body, nullptr, false);
      const std::string rank = object.value("/metadata/labels/ringmaster.dev~1rank"_json_pointer, "");
      if (rank == std::to_string(kDeaf)) {
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

class KubeHarness final : public Harness {
 public:
  KubeHarness() {
    kube::ConfigOptions where;
    where.kubeconfig_paths = {Kubeconfig()};
    auto config = kube::LoadConfig(where);
    CHECK(config.ok(), "{}", config.error().message);
    auto http = kube::MakeHttpClient(*config);
    CHECK(http.ok(), "{}", http.error().message);
    http_ = std::move(http).value();
    client_ = std::make_unique<ApiClient>(deaf_pods_.emplace(*http_));
    InstallDefinition();
    MakeNamespace();

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
    options.on_invalid = [](const control::Key& key, const std::string&,
                            const std::vector<api::Problem>& problems) {
      ADD_FAILURE() << key.ToString() << ": " << problems.at(0).ToString();
    };
    backend_ = std::make_unique<kube::KubeBackend>(*client_, std::move(options));
    backend_->Subscribe([this](const control::Key& key) {
      EndPods(key);
      changed_.notify_all();
    });
    backend_->Start();
    CHECK(Await([&] { return backend_->Synced(); }), "never synced");
  }

  ~KubeHarness() override {
    backend_->Stop();
    for (const control::Key& key : submitted_) {
      // It may be gone already; what counts is that it is.
      (void)Wait([&](auto done) { client_->Delete(kube::kJobs, space_, key.name, {}, done); });
      EXPECT_TRUE(Await(
          [&] { return !Wait([&](auto done) { client_->Get(kube::kJobs, space_, key.name, done); }).ok(); }));
    }
    const auto gone = Wait([&](auto done) { client_->Delete(kube::kNamespaces, "", space_, {}, done); });
    EXPECT_TRUE(gone.ok()) << gone.error().message;
    backend_.reset();
    client_.reset();
    http_.reset();
  }

  control::Backend& backend() override { return *backend_; }

  control::Key Submit(const std::string& name) override {
    const auto text = ReadFile("examples/fashion-mnist-mlp.yaml", size_t{1} << 20);
    CHECK(text.ok(), "{}", text.error().message);
    api::Loaded loaded = api::LoadYaml(*text, {{"metadata.name", name}, {"spec.workers.replicas", "1"}});
    CHECK(loaded.problems.empty(), "{}", loaded.problems.at(0).ToString());
    loaded.job.metadata.namespace_ = space_;
    loaded.job.spec.workers.min.reset();
    loaded.job.spec.workers.max.reset();
    const auto made =
        Wait([&](auto done) { client_->Create(kube::kJobs, space_, api::ToJson(loaded.job), done); });
    CHECK(made.ok(), "{}", made.error().message);
    return submitted_.emplace_back(control::Key{space_, name});
  }

  void DeleteJob(const control::Key& key) override {
    const auto gone =
        Wait([&](auto done) { client_->Delete(kube::kJobs, key.namespace_, key.name, {}, done); });
    EXPECT_TRUE(gone.ok()) << gone.error().message;
  }

  bool HasGates() const override { return true; }

  bool DamageBeside(const control::Key& key) override {
    const auto gone = Wait([&](auto done) {
      client_->Delete(kube::kServices, key.namespace_, wiring::ServiceName(key.name), {}, done);
    });
    EXPECT_TRUE(gone.ok()) << gone.error().message;
    return true;
  }

  bool Await(const std::function<bool()>& condition) override {
    const Time limit = Now() + seconds(60);
    std::unique_lock lock(mutex_);
    while (!condition()) {
      if (Now() >= limit) return false;
      changed_.wait_for(lock, milliseconds(20));
    }
    return true;
  }

 private:
  template <class Ask>
  Result<Json> Wait(Ask ask) {
    auto answer = std::make_shared<std::promise<Result<Json>>>();
    auto future = answer->get_future();
    ask([answer](Result<Json> result) { answer->set_value(std::move(result)); });
    return future.get();
  }

  void InstallDefinition() {
    const auto made =
        Wait([&](auto done) { client_->Create(kCrds, "", api::CustomResourceDefinition(), done); });
    CHECK(made.ok() || made.error().code == Code::kAlreadyExists, "{}", made.error().message);
    CHECK(Await([&] {
            return Wait([&](auto done) {
                     client_->List(
                         kube::kJobs, {}, [](const Json&) {}, done);
                   })
                .ok();
          }),
          "the CustomResourceDefinition was never established");
  }

  void MakeNamespace() {
    static int number = 0;
    space_ = fmt::format("conformance-{}-{}", ::getpid(), ++number);
    const auto made = Wait([&](auto done) {
      client_->Create(kube::kNamespaces, "",
                      {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", space_}}}}, done);
    });
    CHECK(made.ok(), "{}", made.error().message);
    CHECK(Await([&] {
            return Wait([&](auto done) { client_->Get(kAccounts, space_, "default", done); }).ok();
          }),
          "no default service account");
  }

  // Once for each incarnation that runs.
  void EndPods(const control::Key& key) {
    if (key.namespace_ != space_) return;
    const auto snapshot = backend_->Observe(key);
    if (!snapshot) return;
    for (const core::Pod& pod : snapshot->observed.pods) {
      if (pod.phase != core::PodPhase::kRunning) continue;
      if (pod.rank != kSucceeds && pod.rank != kFails && pod.rank != kCrashes) continue;
      {
        std::lock_guard lock(ended_mutex_);
        if (!ended_.insert(pod.uid).second) continue;
      }
      const int code = pod.rank == kSucceeds ? 0 : pod.rank == kFails ? 7 : 137;
      const Json end = {{"exitCode", code},
                        {"reason", code == 0 ? "Completed" : "Error"},
                        {"message", pod.rank == kFails ? kLastWords : ""},
                        {"finishedAt", kube::WallSecondsText(kube::WallNow())}};
      const Json patch = {
          {"status",
           {{"phase", code == 0 ? "Succeeded" : "Failed"},
            {"containerStatuses", Json::array({{{"name", "worker"},
                                                {"ready", false},
                                                {"started", false},
                                                {"state", {{"running", nullptr}, {"terminated", end}}}}})}}}};
      client_->Patch(kube::kPods, space_, pod.name, "status", ApiClient::PatchType::kStrategic, patch,
                     [](const Result<Json>& result) { EXPECT_TRUE(result.ok()) << result.error().message; });
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<kube::HttpClient> http_;
  std::optional<DeafPods> deaf_pods_;
  std::unique_ptr<ApiClient> client_;
  std::unique_ptr<kube::KubeBackend> backend_;
  std::string space_;
  std::vector<control::Key> submitted_;
  std::mutex ended_mutex_;
  std::set<std::string> ended_;
};

std::unique_ptr<Harness> MakeKube() { return std::make_unique<KubeHarness>(); }

INSTANTIATE_TEST_SUITE_P(Kube, BackendConformance, testing::Values(MakeKube));

}  // namespace
}  // namespace ringmaster::conformance
