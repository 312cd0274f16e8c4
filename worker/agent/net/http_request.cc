// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/net/http_request.h"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

namespace ringmaster::agent {
namespace {

constexpr int kBadRequest = 400;
constexpr int kLengthRequired = 411;
constexpr int kTooLarge = 413;
constexpr int kHeadTooLarge = 431;

// Of names of headers: ASCII.
bool SameName(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool HasControls(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < ' ' && c != '\t') || byte == 0x7f;
  });
}

// Returns nothing for what is no number, or a huge one.
std::optional<size_t> ParseLength(std::string_view text) {
  size_t length = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, length);
  if (error != std::errc() || rest != end) return std::nullopt;
  return length;
}

}  // namespace

void HttpRequestReader::Feed(std::string_view bytes) {
  while (part_ == Part::kHead && !bytes.empty()) {
    const size_t newline = bytes.find('\n');
    const size_t size = std::min(newline, bytes.size());
    head_ += size + 1;
    if (head_ > kMaxHead) return Refuse(kHeadTooLarge);
    line_ += bytes.substr(0, size);
    bytes.remove_prefix(std::min(size + 1, bytes.size()));
    if (newline == std::string_view::npos) {
      --head_;
      return;
    }
    std::string line = std::exchange(line_, {});
    if (!line.empty() && line.back() == '\r') line.pop_back();
    OnLine(line);
  }
  if (part_ != Part::kBody) return;
  request_.body += bytes.substr(0, *length_ - request_.body.size());
  if (request_.body.size() == *length_) part_ = Part::kDone;
}

void HttpRequestReader::OnLine(std::string_view line) {
  if (HasControls(line)) return Refuse(kBadRequest);
  if (request_.method.empty()) {
    if (line.empty()) return;  // clients may send empty lines before the request
    const size_t first = line.find(' ');
    const size_t last = line.rfind(' ');
    if (first == 0 || first == std::string_view::npos || last == first) return Refuse(kBadRequest);
    if (!line.substr(last + 1).starts_with("HTTP/1.")) return Refuse(kBadRequest);
    request_.method = line.substr(0, first);
    request_.target = line.substr(first + 1, last - first - 1);
    return;
  }
  if (line.empty()) return EndHead();
  const size_t colon = line.find(':');
  // A name with a space may be the continuation of the line before, which is obsolete.
  if (colon == 0 || line.find_first_of(" \t") < colon || colon == std::string_view::npos)
    return Refuse(kBadRequest);
  OnHeader(line.substr(0, colon), Trim(line.substr(colon + 1)));
}

void HttpRequestReader::OnHeader(std::string_view name, std::string_view value) {
  if (SameName(name, "Content-Length")) {
    const std::optional<size_t> length = ParseLength(value);
    if (!length || (length_ && *length_ != *length)) return Refuse(kBadRequest);
    length_ = length;
  } else if (SameName(name, "Authorization")) {
    request_.authorization = value;
  } else if (SameName(name, "Transfer-Encoding")) {
    chunked_ = true;
  } else if (SameName(name, "Expect")) {
    expects_ = SameName(value, "100-continue");
  }
}

void HttpRequestReader::EndHead() {
  if (chunked_) return Refuse(kLengthRequired);
  if (length_.value_or(0) > kMaxBody) return Refuse(kTooLarge);
  part_ = length_.value_or(0) == 0 ? Part::kDone : Part::kBody;
}

void HttpRequestReader::Refuse(int status) {
  part_ = Part::kDone;
  error_ = status;
}

bool HttpRequestReader::TakeExpectation() {
  return part_ == Part::kBody && request_.body.empty() && std::exchange(expects_, false);
}

}  // namespace ringmaster::agent
