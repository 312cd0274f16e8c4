// SPDX-License-Identifier: Apache-2.0

#include "cli/ui/page_server.h"

#include <fmt/format.h>

#include <charconv>

#include "cli/ui/page_assets.h"

namespace ringmaster::cli {
namespace {

// The page consists of its own files only, and no other site may frame it or read it.
const char* const kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

int64_t NumberOf(const http::Request& request, const std::string& name, int64_t otherwise) {
  const std::string text = QueryValue(request.query, name);
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? number : otherwise;
}

void AddHeaders(http::Response& response) {
  response.headers.insert(response.headers.end(), {{"Content-Security-Policy", kPolicy},
                                                   {"X-Content-Type-Options", "nosniff"},
                                                   {"Referrer-Policy", "no-referrer"},
                                                   {"Cross-Origin-Resource-Policy", "same-origin"}});
}

void Answer(PageFeed& feed, const http::Request& request, const http::Responder& reply) {
  const std::string job = QueryValue(request.query, "job");
  if (request.path == "/api/stream") {
    http::Response response;
    response.content_type = "text/event-stream";
    response.stream = [&feed, job](http::BodyStream stream) { feed.Subscribe(job, std::move(stream)); };
    return reply(std::move(response));
  }
  if (request.path == "/api/steps")
    return feed.Steps(job, NumberOf(request, "from", 0), NumberOf(request, "to", INT64_MAX), reply);
  if (request.path == "/api/log")
    return feed.Log(job, QueryValue(request.query, "worker"), QueryValue(request.query, "until"), reply);
  for (const PageAsset& asset : PageAssets())
    if (request.path == asset.path)
      return reply({200, std::string(asset.content_type), std::string(asset.content)});
  reply({404, "text/plain; charset=utf-8", "not found; the page is at /\n"});
}

}  // namespace

Result<std::unique_ptr<PageServer>> PageServer::Start(const PageAddress& address, PageFeed& feed) {
  auto guard = std::make_shared<PageGuard>();
  if (!IsLoopback(address.host)) {
    RM_ASSIGN(guard->token, MakePageToken());
    guard->cookie = "ringmaster-" + guard->token.substr(0, 4);
  }
  http::ServerOptions options;
  options.host = address.host;
  options.port = address.port;
  RM_ASSIGN(auto server, http::Server::Start(options, [&feed, guard](const http::Request& request,
                                                                     const http::Responder& reply) {
              const auto respond = [reply](http::Response response) {
                AddHeaders(response);
                reply(std::move(response));
              };
              Admission admission = Admit(*guard, request);
              if (admission.kind != Admission::Kind::kServe) return respond(std::move(admission.response));
              Answer(feed, request, respond);
            }));
  const bool v6 = address.host.find(':') != std::string::npos;
  const std::string host = v6 ? "[" + address.host + "]" : address.host;
  std::string url = fmt::format("http://{}:{}/", host, server->port());
  if (!guard->token.empty()) url += "?token=" + guard->token;
  return std::unique_ptr<PageServer>(new PageServer(feed, std::move(server), std::move(url)));
}

PageServer::~PageServer() { feed_.Finish(); }

}  // namespace ringmaster::cli
