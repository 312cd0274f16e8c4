// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/kubeflow/kubeflow_status.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/agent/net/http_request.h"
#include "worker/agent/program/program_progress.h"

namespace ringmaster::agent {
namespace {

using Metrics = std::vector<std::pair<std::string, std::string>>;

const std::string kPath = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/gpt/status";
const std::string kBody =
    R"({"trainerStatus": {"lastUpdatedTime": "2026-06-12T03:00:00+00:00", "progressPercentage": 45, )"
    R"("estimatedRemainingSeconds": 120, "metrics": [{"name": "loss", "value": "0.25"}]}})";

std::string Post(const std::string& body, const std::string& authorization = "Bearer t0ken",
                 const std::string& target = kPath) {
  return "POST " + target +
         " HTTP/1.1\r\nAccept-Encoding: identity\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nHost: 127.0.0.1:4000\r\nAuthorization: " + authorization +
         "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + body;
}

// Feeds the text in parts of `size` bytes.
HttpRequestReader Read(std::string_view text, size_t size = std::string_view::npos) {
  HttpRequestReader reader;
  while (!text.empty()) {
    reader.Feed(text.substr(0, size));
    text.remove_prefix(std::min(size, text.size()));
  }
  return reader;
}

int ErrorOf(const std::string& text) {
  const HttpRequestReader reader = Read(text);
  EXPECT_TRUE(reader.done()) << text;
  return reader.error();
}

TEST(HttpRequest, ARequestMayComeInParts) {
  const std::string text = "\r\n" + Post(kBody);
  for (const size_t size : {size_t{1}, size_t{2}, size_t{7}, text.size()}) {
    const HttpRequestReader reader = Read(text, size);
    ASSERT_TRUE(reader.done()) << size;
    EXPECT_EQ(reader.error(), 0);
    EXPECT_EQ(reader.request().method, "POST");
    EXPECT_EQ(reader.request().target, kPath);
    EXPECT_EQ(reader.request().authorization, "Bearer t0ken");
    EXPECT_EQ(reader.request().body, kBody);
  }
  for (size_t size = 0; size < text.size(); ++size) EXPECT_FALSE(Read(text.substr(0, size)).done()) << size;
}

TEST(HttpRequest, FurtherRequestsOfAConnectionAreIgnored) {
  const HttpRequestReader reader = Read(Post(kBody) + Post("{}"));
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(reader.error(), 0);
  EXPECT_EQ(reader.request().body, kBody);
}

TEST(HttpRequest, LinesMayEndWithoutACarriageReturn) {
  const HttpRequestReader reader = Read("POST /x HTTP/1.0\ncontent-length:2 \n\nhi");
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(reader.error(), 0);
  EXPECT_EQ(reader.request().body, "hi");
}

TEST(HttpRequest, MalformedRequestsAreRefused) {
  for (const char* text :
       {"POST\n", "POST /x\n", " /x HTTP/1.1\n", "POST /x HTTP/2\n", "\x16\x03\x01\x02 /x HTTP/1.1\n",
        "POST /x HTTP/1.1\nno colon\n", "POST /x HTTP/1.1\n: x\n", "POST /x HTTP/1.1\n folded: x\n",
        "POST /x HTTP/1.1\nContent-Length : 2\n", "POST /x HTTP/1.1\nContent-Length: -1\n",
        "POST /x HTTP/1.1\nContent-Length: 2x\n", "POST /x HTTP/1.1\nContent-Length:\n",
        "POST /x HTTP/1.1\nContent-Length: 99999999999999999999\n",
        "POST /x HTTP/1.1\nContent-Length: 2\nContent-Length: 3\n", "POST /x HTTP/1.1\na: b\rc: d\n"})
    EXPECT_EQ(ErrorOf(text), 400) << text;
  EXPECT_EQ(ErrorOf("POST /x HTTP/1.1\nTransfer-Encoding: chunked\n\n"), 411);
}

TEST(HttpRequest, LargeRequestsAreRefusedBeforeTheirEnd) {
  EXPECT_EQ(ErrorOf("POST /x HTTP/1.1\nContent-Length: " + std::to_string(HttpRequestReader::kMaxBody + 1) +
                    "\n\n"),
            413);
  EXPECT_EQ(ErrorOf(std::string(HttpRequestReader::kMaxHead + 1, 'x')), 431) << "no line ends";
  std::string lines = "POST /x HTTP/1.1\n";
  while (lines.size() <= HttpRequestReader::kMaxHead) lines += "a: b\n";
  EXPECT_EQ(ErrorOf(lines), 431);
  EXPECT_EQ(ErrorOf(std::string(HttpRequestReader::kMaxHead + 1, '\n')), 431) << "empty lines";
  const std::string largest(HttpRequestReader::kMaxBody, 'x');
  const HttpRequestReader reader = Read(Post(largest) + "x");
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(reader.request().body, largest);
}

TEST(HttpRequest, AClientMayWaitForPermission) {
  HttpRequestReader reader = Read("POST /x HTTP/1.1\nExpect: 100-Continue\nContent-Length: 2\n\n");
  EXPECT_FALSE(reader.done());
  EXPECT_TRUE(reader.TakeExpectation());
  EXPECT_FALSE(reader.TakeExpectation());
  reader.Feed("hi");
  EXPECT_TRUE(reader.done());
  EXPECT_FALSE(Read("POST /x HTTP/1.1\nExpect: 100-continue\nContent-Length: 2\n\nhi").TakeExpectation());
}

TEST(KubeflowStatus, ReadsWhatTrainerReads) {
  const auto status = ParseKubeflowStatus(kBody);
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(*status, (KubeflowStatus{45, 120, Metrics{{"loss", "0.25"}}}));
  for (const char* empty : {"{}", R"({"trainerStatus": null})"}) {
    const auto none = ParseKubeflowStatus(empty);
    ASSERT_TRUE(none.ok()) << empty;
    EXPECT_EQ(*none, std::nullopt) << empty;
  }
  EXPECT_EQ(ParseKubeflowStatus(R"({"trainerStatus": {"progressPercentage": null, "other": 1}})").value(),
            KubeflowStatus());
}

TEST(KubeflowStatus, RefusesWhatTrainerRefuses) {
  const auto message = [](const std::string& status) {
    const auto read = ParseKubeflowStatus(R"({"trainerStatus": )" + status + "}");
    return read.ok() ? "" : read.error().message;
  };
  for (const char* number : {"101", "-1", "1.5", "\"45\"", "18446744073709551615", "true"}) {
    EXPECT_EQ(message(std::string(R"({"progressPercentage": )") + number + "}"),
              "trainerStatus.progressPercentage: must be a whole number from 0 to 100");
  }
  EXPECT_EQ(message(R"({"estimatedRemainingSeconds": 2147483648})"),
            "trainerStatus.estimatedRemainingSeconds: must be a whole number from 0 to 2147483647");
  EXPECT_EQ(message("[]"), "trainerStatus: must be an object");
  EXPECT_EQ(message(R"({"metrics": {}})"), "trainerStatus.metrics: must be a list of at most 256");
  const std::string texts = "trainerStatus.metrics: name and value must be texts of 1 to 64 bytes";
  for (const char* metric :
       {"1", "{}", R"({"name": "loss"})", R"({"name": "loss", "value": 1})", R"({"name": "", "value": "1"})"})
    EXPECT_EQ(message(std::string(R"({"metrics": [)") + metric + "]}"), texts) << metric;
  EXPECT_EQ(message(R"({"metrics": [{"name": "loss", "value": ")" + std::string(65, '1') + "\"}]}"), texts);
  std::string many = R"({"metrics": [)";
  for (int i = 0; i < 257; ++i) many += std::string(i == 0 ? "" : ",") + R"({"name": "a", "value": "1"})";
  EXPECT_NE(message(many + "]}"), "");
  for (const char* body : {"", "{", "[]", "1", "{\"trainerStatus\": {}} x"})
    EXPECT_FALSE(ParseKubeflowStatus(body).ok()) << body;
}

KubeflowAnswer Answer(const std::string& request, const std::string& token = "t0ken") {
  return AnswerKubeflow(Read(request), kPath, token);
}

TEST(KubeflowStatus, APostWithTheTokenIsTaken) {
  EXPECT_EQ(KubeflowPath("team/gpt"), kPath);
  for (const char* authorization : {"Bearer t0ken", "bearer  t0ken"}) {
    const KubeflowAnswer answer = Answer(Post(kBody, authorization));
    ASSERT_TRUE(answer.status.has_value()) << authorization;
    EXPECT_EQ(answer.status->percent, 45);
    EXPECT_EQ(answer.text, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
                               std::to_string(kBody.size()) + "\r\nConnection: close\r\n\r\n" + kBody);
  }
  const KubeflowAnswer empty = Answer(Post("{}"));
  EXPECT_TRUE(empty.text.starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(empty.status, std::nullopt);
}

TEST(KubeflowStatus, OtherRequestsAreRefused) {
  const auto refused = [](const KubeflowAnswer& answer, const std::string& status) {
    EXPECT_EQ(answer.status, std::nullopt);
    EXPECT_TRUE(answer.text.starts_with("HTTP/1.1 " + status + " ")) << answer.text;
  };
  for (const char* authorization :
       {"", "t0ken", "Bearer", "Bearer ", "Bearer t0ke", "Bearer t0kenx", "Bearer T0ken", "Basic t0ken"})
    refused(Answer(Post(kBody, authorization)), "403");
  refused(Answer(Post(kBody, "Bearer "), ""), "403");
  refused(Answer(Post(kBody, "Bearer t0ken", kPath + "/x")), "404");
  std::string get = Post(kBody);
  refused(Answer(get.replace(0, 4, "GET")), "404");
  refused(Answer(Post("{\"trainerStatus\": {\"progressPercentage\": 101}}")), "422");
  refused(Answer(Post("not json")), "422");
  refused(Answer("POST / HTTP/3\n"), "400");
  const KubeflowAnswer answer = Answer(Post(kBody, "Bearer wrong"));
  EXPECT_TRUE(
      answer.text.ends_with(R"({"code":403,"message":"Forbidden","reason":"Forbidden","status":"Failure"})"))
      << answer.text;
}

// ---- what becomes of it

class KubeflowProgress : public testing::Test {
 protected:
  KubeflowProgress() { progress_.Begin({}); }
  void Take(std::optional<int32_t> percent, std::optional<int32_t> left = {}, Metrics metrics = {}) {
    progress_.Take(KubeflowStatus{percent, left, std::move(metrics)}, {});
  }
  rendezvous::Progress Flush() { return progress_.Flush({}).value_or(rendezvous::Progress{}); }

  ProgramProgress progress_;
};

// The callback of Hugging Face transformers in a run of 500 steps.
TEST_F(KubeflowProgress, TheStepsOfTransformers) {
  Take(0, {}, {{"total_steps", "500"}});
  EXPECT_EQ(progress_.reports(), 0u) << "the watch for hangs must not wait for the first step";
  EXPECT_EQ(progress_.due(), kNever);
  Take(10, 90,
       {{"loss", "0.5"},
        {"grad_norm", "1.25"},
        {"learning_rate", "4.5e-05"},
        {"epoch", "0.3"},
        {"current_step", "50"},
        {"total_steps", "500"},
        {"current_epoch", "0.3"}});
  EXPECT_EQ(progress_.reports(), 1u);
  const rendezvous::Progress first = Flush();
  ASSERT_EQ(first.records.size(), 1u);
  EXPECT_EQ(first.records[0].step, 50);
  EXPECT_EQ(first.records[0].loss, 0.5);
  EXPECT_EQ(first.records[0].gradient_norm, 1.25);
  EXPECT_EQ(first.records[0].learning_rate, 4.5e-05);
  EXPECT_EQ(first.total_steps, 500);
  EXPECT_EQ(first.seconds_left, 90);
  EXPECT_FALSE(progress_.finished());
  Take(100, 0, {{"loss", "0.25"}, {"train_loss", "0.375"}});
  EXPECT_TRUE(progress_.finished());
  EXPECT_EQ(progress_.reports(), 2u);
  const rendezvous::Progress last = Flush();
  EXPECT_TRUE(last.records.empty()) << "a percentage is no step";
  EXPECT_EQ(last.seconds_left, 0);
  Take(0);
  EXPECT_FALSE(progress_.finished()) << "the program trains again";
}

TEST_F(KubeflowProgress, APercentIsAStepWhereThereAreNoOthers) {
  Take(45, 120, {{"loss", "0.25"}, {"accuracy", "0.9"}});
  Take(45, 119, {{"loss", "nan"}});
  const rendezvous::Progress out = Flush();
  ASSERT_EQ(out.records.size(), 2u);
  EXPECT_EQ(out.records[0].step, 45);
  EXPECT_EQ(out.records[0].loss, 0.25);
  EXPECT_EQ(out.records[1].loss, 0);
  EXPECT_EQ(out.total_steps, 100);
  EXPECT_EQ(out.seconds_left, 119);
  Take({}, {}, {{"loss", "0.2"}});
  EXPECT_EQ(progress_.reports(), 3u) << "it shows that the program lives";
  EXPECT_FALSE(progress_.Flush({}).has_value());
  Take(46, {}, {{"step", "460"}, {"max_steps", "1000.0"}});
  EXPECT_EQ(Flush().records[0].step, 460);
  Take(47);
  EXPECT_TRUE(Flush().records.empty());
}

// Hugging Face's Trainer prints the loss of the step that the callback has reported with an earlier loss.
TEST_F(KubeflowProgress, StepsInTheOutputComeFirst) {
  EXPECT_TRUE(progress_.Take(R"({"step": 50, "loss": 0.5})", {}));
  Take(12, 80, {{"loss", "0.5"}, {"current_step", "60"}});
  EXPECT_EQ(progress_.reports(), 2u);
  const rendezvous::Progress out = Flush();
  ASSERT_EQ(out.records.size(), 1u);
  EXPECT_EQ(out.records[0].step, 50);
  EXPECT_EQ(out.seconds_left, 80);
}

TEST_F(KubeflowProgress, ANewProgramBeginsAgain) {
  EXPECT_TRUE(progress_.Take(R"({"step": 50})", {}));
  Take(100, 5);
  progress_.Begin({});
  EXPECT_FALSE(progress_.finished());
  EXPECT_EQ(progress_.due(), kNever);
  Take(10);
  EXPECT_EQ(Flush().records.size(), 1u);
}

}  // namespace
}  // namespace ringmaster::agent
