// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/cluster.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <future>
#include <utility>

#include "base/json.h"
#include "operator/kube/api_error.h"
#include "operator/kube/backend/resources.h"
#include "operator/kube/cpprest_http.h"
#include "operator/wiring/names.h"

namespace ringmaster::cli {
namespace {

constexpr Duration kFollowSilence = std::chrono::hours(24);  // a followed log may be silent for this long
constexpr int kMaxConcurrentRequests = 16;  // each log is a connection from the API server to a node

// Starts a request. The future gets its result.
template <class T, class Start>
std::future<Result<T>> Begin(Start start) {
  auto answer = std::make_shared<std::promise<Result<T>>>();
  auto future = answer->get_future();
  start([answer](Result<T> result) { answer->set_value(std::move(result)); });
  return future;
}

template <class T, class Start>
Result<T> Await(Start start) {
  return Begin<T>(std::move(start)).get();
}

int64_t LabelNumber(const Json& pod, const char* label) {
  const std::string_view text = json::Text(json::Child(json::Child(pod, "metadata"), "labels"), label);
  int64_t number = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9' || number > 1'000'000'000) return -1;
    number = number * 10 + (digit - '0');
  }
  return text.empty() ? -1 : number;
}

kube::HttpRequest LogRequest(const std::string& space, const Cluster::Container& of, int64_t tail,
                             bool follow) {
  kube::HttpRequest request;
  request.target = kube::kPods.Path(of.space.empty() ? space : of.space, of.pod, "log") + "?" +
                   kube::Query({{"container", of.name},
                                {"timestamps", "true"},
                                {"tailLines", tail < 0 ? std::string() : std::to_string(tail)},
                                {"follow", follow ? "true" : ""}});
  request.accept = "*/*";
  return request;
}

}  // namespace

void AddClusterFlags(CLI::App& command, ClusterFlags& flags) {
  command.add_option("-n,--namespace", flags.namespace_, "Job namespace (default: the context's)");
  command.add_option("--context", flags.context, "Context of the kubeconfig (default: the current context)");
  command
      .add_option("--kubeconfig", flags.kubeconfig,
                  "Path of the kubeconfig (default: $KUBECONFIG or ~/.kube/config; inside a pod, its service "
                  "account)")
      ->allow_extra_args(false);
}

std::string JobName(const std::string& argument) {
  const size_t slash = argument.rfind('/');
  return slash == std::string::npos ? argument : argument.substr(slash + 1);
}

Result<std::unique_ptr<Cluster>> Cluster::Connect(const ClusterFlags& flags) {
  kube::ConfigOptions options;
  options.kubeconfig_paths = flags.kubeconfig;
  options.context = flags.context;
  RM_ASSIGN(kube::ClientConfig config, kube::LoadConfig(options));
  config.user_agent = std::string("kubectl-ringmaster/") + RINGMASTER_VERSION;
  std::string space = flags.namespace_.empty() ? config.namespace_ : flags.namespace_;
  kube::TransportOptions transport;
  transport.stream_silence = kFollowSilence;
  transport.max_in_flight = kMaxConcurrentRequests;
  RM_ASSIGN(auto http, kube::MakeHttpClient(config, transport));
  return std::unique_ptr<Cluster>(new Cluster(std::move(http), std::move(space), config.server));
}

Cluster::Cluster(std::unique_ptr<kube::HttpClient> http, std::string space, std::string server)
    : http_(std::move(http)),
      namespace_(std::move(space)),
      server_(std::move(server)),
      api_(*http_, "kubectl-ringmaster") {}

Cluster::~Cluster() = default;

Result<Json> Cluster::Get(const kube::Resource& resource, const std::string& ns, const std::string& name) {
  return Await<Json>([&](auto done) { api_.Get(resource, ns, name, std::move(done)); });
}

Result<std::vector<Json>> Cluster::List(const kube::Resource& resource, const kube::ListOptions& options) {
  auto items = std::make_shared<std::vector<Json>>();
  const auto page = [items](Json more) {
    if (!more.is_array()) return items->clear();  // the list restarted
    for (Json& item : more) items->push_back(std::move(item));
  };
  RM_TRY(Await<Json>([&](auto done) { api_.List(resource, options, page, std::move(done)); }));
  return std::move(*items);
}

Result<Json> Cluster::MergePatch(const kube::Resource& resource, const std::string& name,
                                 const std::string& subresource, const Json& patch) {
  return Await<Json>([&](auto done) {
    api_.Patch(resource, namespace_, name, subresource, kube::ApiClient::PatchType::kMerge, patch,
               std::move(done));
  });
}

Result<Json> Cluster::StrategicPatch(const kube::Resource& resource, const std::string& name,
                                     const Json& patch) {
  return Await<Json>([&](auto done) {
    api_.Patch(resource, namespace_, name, "", kube::ApiClient::PatchType::kStrategic, patch,
               std::move(done));
  });
}

Result<Json> Cluster::Create(const kube::Resource& resource, const Json& object) {
  return Await<Json>([&](auto done) { api_.Create(resource, namespace_, object, std::move(done)); });
}

Status Cluster::Delete(const kube::Resource& resource, const std::string& name,
                       const kube::DeleteOptions& options) {
  RM_TRY(Await<Json>([&](auto done) { api_.Delete(resource, namespace_, name, options, std::move(done)); }));
  return Ok();
}

// Explains the error of a cluster without the CRD: "the server could not find the requested resource".
Error Cluster::WithoutCrd(const Error& error) const {
  if (error.code != Code::kNotFound || error.message.find("requested resource") == std::string::npos)
    return error;
  return {Code::kNotFound, "the cluster at " + server_ +
                               " has no TrainingJob resource: install the chart (helm install), or at least "
                               "`ringmaster crd | kubectl apply --server-side -f -`"};
}

Status Cluster::CheckJobs(const std::string& ns) {
  const auto page = Await<Json>([&](auto done) {
    api_.Raw(kube::kJobs.Path(ns) + "?" + kube::Query({{"limit", "1"}}), std::move(done));
  });
  if (!page.ok()) return WithoutCrd(page.error());
  return Ok();
}

Result<Json> Cluster::Job(const std::string& name) {
  Result<Json> job = Get(kube::kJobs, namespace_, name);
  if (job.ok() || job.error().code != Code::kNotFound) return job;
  if (const Error error = WithoutCrd(job.error()); error.message != job.error().message) return error;
  return Error{Code::kNotFound, "there is no job " + name + " in namespace " + namespace_ +
                                    "; `kubectl get tj -A` lists the jobs of all namespaces"};
}

Result<std::vector<Json>> Cluster::PodsOf(const std::string& job) {
  kube::ListOptions options;
  options.namespace_ = namespace_;
  options.label_selector = std::string(wiring::kJobLabel) + "=" + job;
  RM_ASSIGN(std::vector<Json> pods, List(kube::kPods, options));
  std::stable_sort(pods.begin(), pods.end(), [](const Json& a, const Json& b) {
    return std::pair(-LabelNumber(a, wiring::kAttemptLabel), LabelNumber(a, wiring::kRankLabel)) <
           std::pair(-LabelNumber(b, wiring::kAttemptLabel), LabelNumber(b, wiring::kRankLabel));
  });
  return pods;
}

Result<std::vector<Json>> Cluster::EventsOf(const std::string& job, const std::string& uid) {
  kube::ListOptions options;
  options.namespace_ = namespace_;
  options.field_selector = AboutJob(job);
  RM_ASSIGN(std::vector<Json> events, List(kEvents, options));
  std::erase_if(events, [&](const Json& event) {
    return json::Text(json::Child(event, "involvedObject"), "uid") != uid;
  });
  const auto when = [](const Json& event) {
    const std::string_view last = json::Text(json::Child(event, "series"), "lastObservedTime");
    return last.empty() ? json::Text(event, "eventTime") : last;
  };
  std::stable_sort(events.begin(), events.end(),
                   [&](const Json& a, const Json& b) { return when(a) < when(b); });
  return events;
}

std::vector<Result<std::string>> Cluster::Logs(const std::vector<Container>& of, int64_t tail) {
  std::vector<std::future<Result<kube::HttpResponse>>> answers;
  for (const Container& container : of)
    answers.push_back(Begin<kube::HttpResponse>(
        [&](auto done) { http_->Send(LogRequest(namespace_, container, tail, false), std::move(done)); }));
  std::vector<Result<std::string>> logs;
  for (size_t i = 0; i < of.size(); ++i) {
    Result<kube::HttpResponse> answer = answers[i].get();
    if (!answer.ok())
      logs.emplace_back(answer.error());
    else if (answer->status >= 300)
      logs.emplace_back(kube::ToError(*answer, true, "log of " + of[i].pod));
    else
      logs.emplace_back(std::move(answer->body));
  }
  return logs;
}

std::unique_ptr<kube::HttpStream> Cluster::FollowLog(const Container& of, int64_t tail,
                                                     kube::StreamHandlers handlers) {
  return http_->Stream(LogRequest(namespace_, of, tail, true), std::move(handlers));
}

}  // namespace ringmaster::cli
