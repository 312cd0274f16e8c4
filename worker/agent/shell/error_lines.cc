// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/error_lines.h"

#include <algorithm>
#include <cctype>

#include "rendezvous/lost_peer.h"
#include "worker/agent/shell/log_pipe.h"

namespace ringmaster::agent {
namespace {

constexpr std::string_view kTraceback = "Traceback (most recent call last):";
constexpr std::string_view kChildFailed = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError";
constexpr std::string_view kReportedCause = "traceback : ";
// A rank of the same torchrun that loses another one says so within this time: the process of the other one
// may take long to end after its exception.
constexpr Duration kConsequence = seconds(60);

bool IsEmpty(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }
bool SaysNothing(std::string_view line) { return line.find_first_not_of(" \t\r=-") == line.npos; }

std::string_view Trimmed(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

// Removes "[rank1]: " of torch.distributed, and "[default0]:" of torchrun with --tee.
std::string_view WithoutPrefix(std::string_view line) {
  constexpr size_t kLongest = 40;
  while (line.starts_with('[')) {
    const size_t end = line.find("]:");
    if (end == line.npos || end > kLongest || line.find(' ') < end) break;
    line.remove_prefix(end + 2);
    if (line.starts_with(' ')) line.remove_prefix(1);
  }
  return line;
}

// A frame of a traceback. That of a SyntaxError has no line before it.
bool IsFrame(std::string_view text) { return text.starts_with(' ') && Trimmed(text).starts_with("File \""); }

// "module.Name: message", or without a message.
bool IsException(std::string_view text) {
  const auto in_name = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || std::isalnum(byte) != 0 || c == '_' || c == '.' || c == '<' || c == '>';
  };
  text = Trimmed(text);
  if (text.empty() || !in_name(text.front()) || std::isdigit(static_cast<unsigned char>(text.front())) != 0)
    return false;
  while (!text.empty() && in_name(text.front())) text.remove_prefix(1);
  return text.empty() || text.front() == ':';
}

bool IsOfTorchrun(std::string_view text) {
  return text.find("torch/distributed/elastic/") != text.npos ||
         text.find("torch/distributed/run.py") != text.npos ||
         text.find("torch.distributed.elastic.") != text.npos;
}

std::string Kept(std::string_view line) { return std::string(line.substr(0, LogPipe::kMaxTailLine)); }

}  // namespace

void ErrorLines::Take(std::string_view line, Time now) {
  const std::string_view text = WithoutPrefix(line);
  if (IsEmpty(text)) return;
  if (text.starts_with(kTraceback)) {
    in_traceback_ = true;
    in_report_ = false;
    return;
  }
  if (in_report_) return TakeReport(text);
  if (IsFrame(text)) {
    in_traceback_ = true;
    return;
  }
  if (in_traceback_) {
    if (text.starts_with(' ')) return;
    in_traceback_ = false;
    in_report_ = text.starts_with(kChildFailed);
    if (in_report_) return signal_.clear();
    if (IsException(text)) return TakeException(line, now);
  }
  if (SaysNothing(text)) return;
  (IsOfTorchrun(text) ? torchrun_ : other_) = Kept(line);
}

// The cause of the first failure comes last. An abort comes after an error that says more.
void ErrorLines::TakeReport(std::string_view text) {
  text = Trimmed(text);
  if (!text.starts_with(kReportedCause)) return;
  text.remove_prefix(kReportedCause.size());
  const bool killed = text.starts_with("Signal ") && text.find("(SIGABRT)") == text.npos;
  signal_ = killed ? Kept(text) : "";
}

void ErrorLines::TakeException(std::string_view line, Time now) {
  std::string exception = Kept(line);
  if (!exception_.empty() && now - exception_at_ < kConsequence && rendezvous::NamesALostPeer(exception))
    return;
  exception_ = std::move(exception);
  exception_at_ = now;
}

std::string ErrorLines::Reason(const std::deque<std::string>& tail) const {
  const auto last = std::find_if_not(tail.rbegin(), tail.rend(), IsEmpty);
  if (last == tail.rend()) return "";
  if (!SaysNothing(*last)) return *last;
  for (const std::string* candidate : {&signal_, &exception_, &other_, &torchrun_})
    if (!candidate->empty()) return *candidate;
  return *last;
}

}  // namespace ringmaster::agent
