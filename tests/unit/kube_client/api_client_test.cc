// SPDX-License-Identifier: Apache-2.0

// Verbs, pages, retries and errors of the API client, over a transport whose responses the test writes.
#include "operator/kube/api_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "tests/unit/kube_client/waiting.h"

namespace ringmaster::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Resource kPods{"", "v1", "pods"};
const Resource kJobs{"ringmaster.dev", "v1alpha1", "trainingjobs"};

// Keeps requests until the test answers them. The client's timer may send further ones.
class HandTransport final : public HttpClient {
 public:
  struct Asked {
    HttpRequest request;
    std::function<void(Result<HttpResponse>)> done;
  };

  void Send(HttpRequest request, std::function<void(Result<HttpResponse>)> done) override {
    std::lock_guard lock(mutex_);
    asked_.push_back({std::move(request), std::move(done)});
    came_.notify_all();
  }
  std::unique_ptr<HttpStream> Stream(HttpRequest request, StreamHandlers handlers) override {
    stream_request = std::move(request);
    stream = std::move(handlers);
    return std::make_unique<HttpStream>();
  }

  Asked Next() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(came_.wait_for(lock, kPatience, [&] { return !asked_.empty(); })) << "no request came";
    if (asked_.empty()) return {{}, [](Result<HttpResponse>) {}};
    Asked next = std::move(asked_.front());
    asked_.pop_front();
    return next;
  }
  HttpRequest Reply(int status, std::string body, std::optional<Duration> retry_after = std::nullopt) {
    Asked asked = Next();
    HttpResponse response;
    response.status = status;
    response.body = std::move(body);
    response.retry_after = retry_after;
    asked.done(std::move(response));
    return asked.request;
  }
  HttpRequest Fail(Error error) {
    Asked asked = Next();
    asked.done(std::move(error));
    return asked.request;
  }
  bool Idle() {
    std::lock_guard lock(mutex_);
    return asked_.empty();
  }

  HttpRequest stream_request;
  StreamHandlers stream;

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Asked> asked_;
};

class Api : public ::testing::Test {
 protected:
  ApiClient::Done Done() {
    return [this](Result<Json> result) { result_.Set(std::move(result)); };
  }
  HandTransport http_;
  std::mutex mutex_;
  std::vector<std::pair<std::string, int>> retries_;
  ApiClient api_{http_, kFieldManager, [this](const std::string& method, int status) {
                   const std::lock_guard lock(mutex_);
                   retries_.emplace_back(method, status);
                 }};
  Promise<Result<Json>> result_;
};

TEST_F(Api, EachVerbSendsItsRequest) {
  const Json object = {{"apiVersion", "v1"}, {"kind", "Pod"}};
  api_.Get(kPods, "rm", "x-0", Done());
  HttpRequest request = http_.Reply(200, R"({"kind":"Pod"})");
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.target, "/api/v1/namespaces/rm/pods/x-0");
  EXPECT_EQ(result_.Get().value(), (Json{{"kind", "Pod"}}));

  api_.Create(kPods, "rm", object, Done());
  request = http_.Reply(201, "{}");
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/api/v1/namespaces/rm/pods?fieldManager=ringmaster-operator");
  EXPECT_EQ(request.body, R"({"apiVersion":"v1","kind":"Pod"})");
  EXPECT_EQ(request.content_type, "application/json");

  api_.Apply(kJobs, "rm", "x", "status", object, true, Done());
  request = http_.Reply(200, "{}");
  EXPECT_EQ(request.method, "PATCH");
  EXPECT_EQ(request.target,
            "/apis/ringmaster.dev/v1alpha1/namespaces/rm/trainingjobs/x/"
            "status?fieldManager=ringmaster-operator&force=true");
  EXPECT_EQ(request.content_type, "application/apply-patch+yaml");

  api_.Apply(kJobs, "rm", "x", "", object, false, Done());
  EXPECT_EQ(http_.Reply(200, "{}").target,
            "/apis/ringmaster.dev/v1alpha1/namespaces/rm/trainingjobs/x?fieldManager=ringmaster-operator");

  api_.Update(kJobs, "rm", "x", "", object, Done());
  EXPECT_EQ(http_.Reply(200, "{}").method, "PUT");

  for (const auto& [type, content_type] :
       {std::pair{ApiClient::PatchType::kMerge, "application/merge-patch+json"},
        std::pair{ApiClient::PatchType::kJson, "application/json-patch+json"},
        std::pair{ApiClient::PatchType::kStrategic, "application/strategic-merge-patch+json"}}) {
    api_.Patch(kPods, "rm", "x", "", type, Json::array(), Done());
    request = http_.Reply(200, "{}");
    EXPECT_EQ(request.method, "PATCH");
    EXPECT_EQ(request.content_type, content_type);
  }

  api_.Delete(kPods, "rm", "x", {.uid = "u-1", .grace_seconds = 0, .propagation = "Background"}, Done());
  request = http_.Reply(200, "{}");
  EXPECT_EQ(request.method, "DELETE");
  EXPECT_EQ(Json::parse(request.body), (Json{{"apiVersion", "v1"},
                                             {"kind", "DeleteOptions"},
                                             {"gracePeriodSeconds", 0},
                                             {"preconditions", {{"uid", "u-1"}}},
                                             {"propagationPolicy", "Background"}}));
  api_.Delete(kPods, "rm", "x", {}, Done());
  EXPECT_EQ(http_.Reply(200, "{}").body, R"({"apiVersion":"v1","kind":"DeleteOptions"})");

  api_.Raw("/version", Done());
  EXPECT_EQ(http_.Reply(200, "{}").target, "/version");
}

TEST_F(Api, RequestsMetadataOnlyWhereThatIsEnough) {
  const Json object = {{"apiVersion", "v1"}, {"kind", "Pod"}};
  const auto lean = [](const HttpRequest& request) {
    return request.accept.find("as=PartialObjectMetadata;") != std::string::npos;
  };
  api_.Create(kPods, "rm", object, Done());
  EXPECT_FALSE(lean(http_.Reply(200, "{}")));  // the result of a review is its status
  api_.Update(kJobs, "rm", "x", "", object, Done());
  EXPECT_FALSE(lean(http_.Reply(200, "{}")));
  api_.Create(kPods, "rm", object, Done(), ApiClient::Response::kMetadata);
  EXPECT_TRUE(lean(http_.Reply(200, "{}")));
  api_.Update(kJobs, "rm", "x", "status", object, Done(), ApiClient::Response::kMetadata);
  EXPECT_TRUE(lean(http_.Reply(200, "{}")));
  api_.Patch(kPods, "rm", "x", "", ApiClient::PatchType::kMerge, object, Done());
  EXPECT_TRUE(lean(http_.Reply(200, "{}")));
  api_.Apply(kPods, "rm", "x", "", object, true, Done());
  EXPECT_TRUE(lean(http_.Reply(200, "{}")));
  api_.Delete(kPods, "rm", "x", {}, Done());
  EXPECT_TRUE(lean(http_.Reply(200, "{}")));
}

TEST_F(Api, MapsStatusesToCodes) {
  struct {
    int status;
    const char* reason;
    Code read;
    Code write;
  } const cases[] = {
      {400, "BadRequest", Code::kInvalid, Code::kInvalid},
      {403, "Forbidden", Code::kForbidden, Code::kForbidden},
      {404, "NotFound", Code::kNotFound, Code::kNotFound},
      {405, "MethodNotAllowed", Code::kInvalid, Code::kInvalid},
      {409, "AlreadyExists", Code::kAlreadyExists, Code::kAlreadyExists},
      {409, "Conflict", Code::kConflict, Code::kConflict},
      {410, "Expired", Code::kGone, Code::kGone},
      {413, "RequestEntityTooLarge", Code::kInvalid, Code::kInvalid},
      {415, "UnsupportedMediaType", Code::kInvalid, Code::kInvalid},
      {422, "Invalid", Code::kInvalid, Code::kInvalid},
      {302, "", Code::kInvalid, Code::kInvalid},
      {500, "InternalError", Code::kUnavailable, Code::kAmbiguous},
      {502, "", Code::kUnavailable, Code::kAmbiguous},
      {504, "Timeout", Code::kUnavailable, Code::kAmbiguous},
  };
  for (const auto& one : cases) {
    const std::string body =
        DumpJson({{"kind", "Status"}, {"message", "said so"}, {"reason", one.reason}, {"code", one.status}});
    api_.Get(kPods, "rm", "x", Done());
    http_.Reply(one.status, body);
    EXPECT_EQ(result_.Get().error().code, one.read) << one.status << one.reason;
    EXPECT_THAT(result_.Get().error().message, HasSubstr("GET pods rm/x: said so"));
    api_.Create(kPods, "rm", {{"metadata", {{"name", "y"}}}}, Done());
    http_.Reply(one.status, body);
    EXPECT_EQ(result_.Get().error().code, one.write) << one.status << one.reason;
  }
}

TEST_F(Api, ErrorContainsTheTextOfAProxy) {
  api_.Get(kPods, "rm", "x", Done());
  http_.Reply(502, "<html>\nbad gateway</html>\n");
  EXPECT_EQ(result_.Get().error().message, "GET pods rm/x: <html> bad gateway</html>");
  api_.Get(kPods, "", "x", Done());
  http_.Reply(404, "");
  EXPECT_EQ(result_.Get().error().message, "GET pods x: HTTP status 404");
}

TEST_F(Api, LostResponseIsAmbiguousForWritesOnly) {
  api_.Get(kPods, "rm", "x", Done());
  http_.Next().done(Error{Code::kAmbiguous, "lost"});
  EXPECT_EQ(result_.Get().error(), (Error{Code::kUnavailable, "GET pods rm/x: lost"}));
  api_.Apply(kPods, "rm", "x", "", Json::object(), true, Done());
  http_.Next().done(Error{Code::kAmbiguous, "lost"});
  EXPECT_EQ(result_.Get().error(), (Error{Code::kAmbiguous, "PATCH pods rm/x: lost"}));
  api_.Apply(kPods, "rm", "x", "", Json::object(), true, Done());
  http_.Reply(200, "{\"cut");
  EXPECT_EQ(result_.Get().error().code, Code::kAmbiguous);
}

TEST_F(Api, RetriesAfter429And503) {
  for (const int status : {429, 503}) {
    api_.Create(kPods, "rm", Json::object(), Done());
    const int before = result_.times();
    http_.Reply(status, "", seconds(0));
    http_.Reply(status, "", seconds(0));
    EXPECT_EQ(result_.times(), before);
    EXPECT_EQ(http_.Reply(201, R"({"a":1})").body, "{}");
    EXPECT_EQ(result_.Get().value(), (Json{{"a", 1}}));
  }
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(retries_, (std::vector<std::pair<std::string, int>>{
                          {"POST", 429}, {"POST", 429}, {"POST", 503}, {"POST", 503}}));
}

// Pods that are created at the same time count against the same quota.
TEST_F(Api, RetriesAfterAConflictOfQuotas) {
  api_.Create(kPods, "rm", Json::object(), Done());
  http_.Reply(409,
              R"({"reason":"Conflict","message":"Operation cannot be fulfilled on resourcequotas \"q\": the )"
              R"(object has been modified; please apply your changes to the latest version and try again"})",
              seconds(0));
  http_.Reply(201, R"({"a":1})");
  EXPECT_EQ(result_.Get().value(), (Json{{"a", 1}}));
  api_.Update(kPods, "rm", "x", "status", Json::object(), Done());
  http_.Reply(409,
              R"({"reason":"Conflict","message":"Operation cannot be fulfilled on pods \"x\": the object)"
              R"( has been modified"})");
  EXPECT_EQ(result_.Get().error().code, Code::kConflict) << "the view is old";
  EXPECT_TRUE(http_.Idle());
}

TEST_F(Api, StopsRetryingAfterTheLimit) {
  api_.Create(kPods, "rm", Json::object(), Done());
  for (int i = 0; i < 6; ++i) http_.Reply(429, R"({"message":"too many requests"})", seconds(0));
  const auto result = result_.Get();
  EXPECT_EQ(result.error(), (Error{Code::kUnavailable, "POST pods rm/: too many requests"}));
  EXPECT_TRUE(http_.Idle());
}

TEST(ApiEnd, DestroyingTheClientEndsPendingRetries) {
  HandTransport http;
  Promise<Result<Json>> result;
  {
    ApiClient api(http);
    api.Get(kPods, "rm", "x", [&](Result<Json> got) { result.Set(std::move(got)); });
    http.Reply(503, "", seconds(3600));
  }
  EXPECT_EQ(result.times(), 1);
  EXPECT_EQ(result.Get().error().code, Code::kUnavailable);
  EXPECT_TRUE(http.Idle());
}

TEST_F(Api, RetriesOnceWithNewCredentials) {
  api_.Get(kPods, "rm", "x", Done());
  http_.Reply(401, R"({"message":"Unauthorized"})");
  http_.Reply(200, R"({"a":1})");
  EXPECT_TRUE(result_.Get().ok());
  api_.Get(kPods, "rm", "x", Done());
  http_.Reply(401, "");
  http_.Reply(401, R"({"message":"Unauthorized"})");
  EXPECT_EQ(result_.Get().error().code, Code::kForbidden);
  EXPECT_TRUE(http_.Idle());
}

TEST_F(Api, LogsEachWarningOnce) {
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    api_.Get(kPods, "rm", "x", Done());
    HandTransport::Asked asked = http_.Next();
    HttpResponse response;
    response.status = 200;
    response.body = "{}";
    response.warnings = {"field is old"};
    asked.done(response);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("field is old"));
  EXPECT_EQ(log.find("field is old"), log.rfind("field is old"));
}

// ---- lists

class Listing : public Api {
 protected:
  void Start(const ListOptions& options) {
    api_.List(
        kPods, options, [this](Json items) { pages_.push_back(std::move(items)); }, Done());
  }
  static std::string Page(const Json& items, const std::string& next, const std::string& version = "7") {
    Json metadata = {{"resourceVersion", version}};
    if (!next.empty()) metadata["continue"] = next;
    return DumpJson({{"kind", "PodList"}, {"metadata", metadata}, {"items", items}});
  }
  std::vector<Json> pages_;
};

TEST_F(Listing, ReadsAllPages) {
  Start({.namespace_ = "rm",
         .label_selector = "a=b,c",
         .field_selector = "spec.nodeName=n",
         .resource_version = "0"});
  HttpRequest request = http_.Reply(200, Page({1, 2}, "to/ken="));
  EXPECT_EQ(request.target,
            "/api/v1/namespaces/rm/pods?labelSelector=a%3Db%2Cc&fieldSelector=spec.nodeName%3Dn&limit=500&"
            "resourceVersion=0");
  EXPECT_EQ(request.accept, "application/json");
  request = http_.Reply(200, Page({3}, ""));
  EXPECT_EQ(request.target,
            "/api/v1/namespaces/rm/pods?labelSelector=a%3Db%2Cc&fieldSelector=spec.nodeName%3Dn&limit=500&"
            "continue=to%2Fken%3D");
  EXPECT_EQ(result_.Get().value(), (Json{{"resourceVersion", "7"}}));
  EXPECT_THAT(pages_, ElementsAre(Json{1, 2}, Json{3}));
}

TEST_F(Listing, StartsAgainWhenItsTokenExpires) {
  Start({});
  http_.Reply(200, Page({1, 2}, "t1"));
  http_.Reply(410, R"({"message":"the provided continue parameter is too old","reason":"Expired"})");
  HttpRequest request = http_.Reply(200, Page({5, 6, 7}, "t2", "9"));
  EXPECT_EQ(request.target, "/api/v1/pods?limit=1000") << "never all in one page, however many there are";
  request = http_.Reply(200, Page({8}, "", "9"));
  EXPECT_EQ(request.target, "/api/v1/pods?limit=1000&continue=t2");
  EXPECT_EQ(result_.Get().value(), (Json{{"resourceVersion", "9"}}));
  EXPECT_THAT(pages_, ElementsAre(Json{1, 2}, Json(nullptr), Json{5, 6, 7}, Json{8}));
}

// The caller decides when to try again.
TEST_F(Listing, EndsWhenItsTokensExpireAgainAndAgain) {
  Start({});
  for (const char* limit : {"500", "1000", "2000", "2000"}) {
    EXPECT_EQ(http_.Reply(200, Page({1}, "t")).target, fmt::format("/api/v1/pods?limit={}", limit));
    http_.Reply(410, R"({"message":"too old","reason":"Expired"})");
  }
  EXPECT_EQ(result_.Get().error().code, Code::kGone);
}

TEST_F(Listing, APageThatIsTooLargeIsReadInSmallerOnes) {
  Start({});
  http_.Reply(200, Page({1}, "t"));
  http_.Fail({Code::kExhausted, "the response is larger than 10 bytes"});
  EXPECT_EQ(http_.Reply(200, Page({2}, "")).target, "/api/v1/pods?limit=250&continue=t");
  EXPECT_THAT(pages_, ElementsAre(Json{1}, Json{2}));
  EXPECT_TRUE(result_.Get().ok());
}

TEST_F(Listing, PagesGrowAgainAfterALargeObject) {
  Start({});
  for (const int limit : {500, 250, 125})
    EXPECT_EQ(http_.Fail({Code::kExhausted, "too large"}).target,
              fmt::format("/api/v1/pods?limit={}", limit));
  for (const int limit : {62, 124, 248, 496, 500, 500})
    EXPECT_THAT(http_.Reply(200, Page({1}, "t")).target, HasSubstr(fmt::format("limit={}", limit)));
  http_.Reply(200, Page({2}, ""));
  EXPECT_TRUE(result_.Get().ok());
}

TEST_F(Listing, AnObjectThatIsTooLargeIsAnError) {
  Start({});
  for (const int limit : {500, 250, 125, 62, 31, 15, 7, 3, 1})
    EXPECT_EQ(http_.Fail({Code::kExhausted, "too large"}).target,
              fmt::format("/api/v1/pods?limit={}", limit));
  EXPECT_EQ(result_.Get().error().code, Code::kExhausted);
}

TEST_F(Listing, GoneOnTheFirstPageIsAnError) {
  Start({.resource_version = "5"});
  http_.Reply(410, R"({"message":"too old","reason":"Expired"})");
  EXPECT_EQ(result_.Get().error(), (Error{Code::kGone, "GET pods: too old"}));
  EXPECT_TRUE(pages_.empty());
}

// A foreign object must not make a list unreadable.
TEST_F(Listing, AcceptsObjectsOfAnyShape) {
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "{\"a\":";
  deep += "1" + std::string(1000, '}');
  Start({});
  http_.Reply(200, R"({"metadata":{"resourceVersion":"7"},"items":[{"x":1,"x":2,"metadata":{"name":"a",)"
                   R"("managedFields":[{"manager":"m"}]}},)" +
                       deep + "]}");
  ASSERT_TRUE(result_.Get().ok()) << result_.Get().error().message;
  ASSERT_EQ(pages_.size(), 1u);
  EXPECT_EQ(pages_[0][0], (Json{{"x", 2}, {"metadata", {{"name", "a"}}}}));
}

TEST_F(Listing, ResponseThatIsNotAListIsAnError) {
  for (const char* body : {"{}", R"({"items":[],"metadata":3})", R"({"items":3,"metadata":{}})", "[]"}) {
    Start({});
    http_.Reply(200, body);
    EXPECT_EQ(result_.Get().error().code, Code::kUnavailable) << body;
  }
  Start({});
  http_.Reply(200, R"({"items":null,"metadata":{"resourceVersion":"3"}})");
  EXPECT_TRUE(result_.Get().ok());
}

TEST_F(Listing, RequestsMetadataOnly) {
  Start({.metadata_only = true});
  EXPECT_THAT(http_.Reply(200, Page(Json::array(), "")).accept,
              HasSubstr("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"));
}

// ---- watches

TEST_F(Api, WatchReportsItsEnd) {
  std::vector<std::string> lines;
  Promise<Status> end;
  const auto watch = [&] {
    return api_.Watch(
        kJobs,
        {.label_selector = "a=b", .resource_version = "12", .metadata_only = true, .timeout_seconds = 270},
        true, [&](std::string_view line) { lines.emplace_back(line); },
        [&](Status status) { end.Set(status); });
  };
  auto stream = watch();
  EXPECT_EQ(
      http_.stream_request.target,
      "/apis/ringmaster.dev/v1alpha1/trainingjobs?watch=true&allowWatchBookmarks=true&resourceVersion=12&"
      "timeoutSeconds=270&labelSelector=a%3Db");
  EXPECT_THAT(http_.stream_request.accept, HasSubstr("as=PartialObjectMetadata;"));
  http_.stream.on_line("{}");
  EXPECT_THAT(lines, ElementsAre("{}"));
  http_.stream.on_end(HttpResponse{.status = 200});
  EXPECT_TRUE(end.Get().ok());

  stream = watch();
  http_.stream.on_end(HttpResponse{.status = 410, .body = R"({"message":"too old","reason":"Expired"})"});
  EXPECT_EQ(end.Get().error(), (Error{Code::kGone, "watch: GET trainingjobs: too old"}));

  stream = watch();
  http_.stream.on_end(Error{Code::kAmbiguous, "the connection was closed"});
  EXPECT_EQ(end.Get().error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace ringmaster::kube
