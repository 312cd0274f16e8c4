// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/launcher_report.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ringmaster::agent {
namespace {

constexpr size_t kMaxWords = 300;
constexpr size_t kShortestFrame = 40;

// Reports about what another one, or a rank, has caused.
constexpr std::array<std::string_view, 8> kConsequences = {"An internal error has occurred in",
                                                           "Primary job  terminated normally",
                                                           "Primary job terminated normally",
                                                           "detected that one or more processes exited",
                                                           "was unable to reliably start one or more daemons",
                                                           "has lost communication with",
                                                           "noticed that process rank",
                                                           "WARNING"};
constexpr std::array<std::string_view, 8> kHopeless = {
    "There are not enough slots available",
    "unable to open the hostfile",
    "unknown option",
    "unrecognized argument",
    "An unrecognized option was included",
    "requested more processes than the ppr",
    "All nodes which are allocated for this job are already filled",
    "do not match any of the allocated"};

template <size_t N>
bool Mentions(std::string_view text, const std::array<std::string_view, N>& phrases) {
  return std::any_of(phrases.begin(), phrases.end(),
                     [&](std::string_view phrase) { return text.find(phrase) != text.npos; });
}

bool HasText(std::string_view line) { return line.find_first_not_of(" \t\r-") != line.npos; }
bool IsBorder(std::string_view line) { return line.size() > kShortestFrame && !HasText(line); }

std::string_view WithoutSpace(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\t'))
    line.remove_suffix(1);
  return line;
}

bool IsHydra(std::string_view line) { return line.starts_with("[mpiexec@") || line.starts_with("[proxy:"); }

// "[mpiexec@host] function (file.c:12): text": the text.
std::string_view HydraText(std::string_view line) {
  const size_t end = line.find("): ");
  return end == line.npos ? line : line.substr(end + 3);
}

// Cuts at a space, and not within a character or a word.
std::string Shortened(std::string text) {
  if (text.size() <= kMaxWords) return text;
  const size_t space = text.rfind(' ', kMaxWords);
  text.resize(space == std::string::npos ? kMaxWords : space);
  return text + " ...";
}

}  // namespace

void LauncherReport::Take(std::string_view line) {
  if (IsBorder(line)) {
    if (in_report_) EndReport();
    in_report_ = !in_report_;
    in_hydra_ = false;
    last_is_report_ = true;
    return;
  }
  if (in_report_) return TakeReport(line);
  if (!HasText(line)) return;
  const bool hydra = IsHydra(line);
  const bool error = line.find(": Error: ") != line.npos && line.starts_with("mpi");
  const bool usage = last_is_report_ && line.starts_with("Type '");
  if (hydra && !std::exchange(in_hydra_, true)) cause_ = HydraText(line);
  if (error) cause_ = WithoutSpace(line);
  in_hydra_ = hydra;
  last_is_report_ = hydra || error || usage;
}

void LauncherReport::TakeReport(std::string_view line) {
  const bool empty = !HasText(line);
  if (empty) paragraph_ended_ = paragraph_ended_ || !paragraph_.empty();
  // "There are not enough slots ... by the application:" continues behind an empty line.
  if (!empty && paragraph_ended_ && paragraph_.ends_with(':')) paragraph_ended_ = false;
  if (empty || paragraph_ended_) return;
  paragraph_ += (paragraph_.empty() ? "" : " ") + std::string(WithoutSpace(line));
}

void LauncherReport::EndReport() {
  if (!paragraph_.empty()) (Mentions(paragraph_, kConsequences) ? other_ : cause_) = paragraph_;
  paragraph_.clear();
  paragraph_ended_ = false;
}

std::string LauncherReport::Reason(const std::deque<std::string>& tail) const {
  if (last_is_report_ && !cause_.empty()) return Shortened(cause_);
  if (last_is_report_ && !other_.empty()) return Shortened(other_);
  const auto last = std::find_if(tail.rbegin(), tail.rend(), HasText);
  return last == tail.rend() ? "" : std::string(WithoutSpace(*last));
}

bool IsHopeless(std::string_view reason) { return Mentions(reason, kHopeless); }

}  // namespace ringmaster::agent
