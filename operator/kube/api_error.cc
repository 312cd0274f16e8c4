// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/api_error.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace ringmaster::kube {
namespace {

constexpr size_t kMaxTextBytes = 2048;

struct ServerStatus {
  std::string message;
  std::string reason;
};

// Reads the Status object in the body. A body that is not JSON, as proxies send it, becomes the message.
ServerStatus ReadStatus(const std::string& body) {
  ServerStatus status;
  if (const Result<Json> json = ParseJson(body); json.ok() && json->is_object()) {
    if (const auto message = json->find("message"); message != json->end() && message->is_string())
      status.message = message->get<std::string>();
    if (const auto reason = json->find("reason"); reason != json->end() && reason->is_string())
      status.reason = reason->get<std::string>();
  } else {
    status.message = body;
  }
  if (status.message.size() > kMaxTextBytes) status.message = status.message.substr(0, kMaxTextBytes) + "...";
  std::replace_if(
      status.message.begin(), status.message.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  while (!status.message.empty() && status.message.back() == ' ') status.message.pop_back();
  return status;
}

Code ToCode(int status, const std::string& reason, bool read) {
  switch (status) {
    case 401:
    case 403:
      return Code::kForbidden;
    case 404:
      return Code::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? Code::kAlreadyExists : Code::kConflict;
    case 410:
      return Code::kGone;
    case 408:
    case 429:
    case 503:
      return Code::kUnavailable;
    default:
      if (status < 500) return Code::kInvalid;
      return read ? Code::kUnavailable : Code::kAmbiguous;
  }
}

}  // namespace

Error ToError(const HttpResponse& response, bool read, const std::string& what) {
  const ServerStatus status = ReadStatus(response.body);
  std::string message = fmt::format("{}: ", what);
  if (status.message.empty())
    message += fmt::format("HTTP status {}", response.status);
  else
    message += status.message;
  if (response.status >= 300 && response.status < 400) message += " (redirects are never followed)";
  if (response.status == 401) message += " (the API server does not accept the credentials)";
  // The server is behind what it has shown before: its data was restored, or this replica of it lags.
  if (read && status.message.find("Too large resource version") != std::string::npos)
    return {Code::kGone, message};
  return {ToCode(response.status, status.reason, read), message};
}

std::string Describe(const HttpRequest& request) {
  std::string_view path = request.target;
  path = path.substr(0, path.find('?'));
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    if (end > 0) parts.push_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  // api/VERSION or apis/GROUP/VERSION, then namespaces/NAMESPACE unless the namespace is the object itself.
  const size_t head = parts.empty() ? 0 : parts[0] == "api" ? 2 : parts[0] == "apis" ? 3 : 0;
  if (head == 0 || parts.size() <= head)
    return fmt::format("{} {}", request.method, request.target.substr(0, 200));
  size_t at = head;
  std::string text = request.method;
  std::string_view of;
  if (parts[at] == "namespaces" && parts.size() > at + 2) {
    of = parts[at + 1];
    at += 2;
  }
  text.append(" ").append(parts[at]);
  if (parts.size() > at + 2) text.append("/").append(parts[at + 2]);
  if (of.empty() && parts.size() == at + 1) return text;
  text.append(" ");
  if (!of.empty()) text.append(of).append("/");
  if (parts.size() > at + 1) text.append(parts[at + 1]);
  return text;
}

}  // namespace ringmaster::kube
