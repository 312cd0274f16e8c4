// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/event_correlator.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/hash.h"

namespace ringmaster::kube {
namespace {

uint64_t IdOf(const EventSubject& subject, std::initializer_list<std::string_view> more = {}) {
  std::string text;
  const auto add = [&](std::string_view part) { text.append(part).push_back('\0'); };
  for (const std::string_view part :
       {std::string_view(subject.namespace_), std::string_view(subject.name), std::string_view(subject.uid)})
    add(part);
  for (const std::string_view part : more) add(part);
  return Hash64(AsBytes(std::span<const char>(text)));
}

}  // namespace

bool EventCorrelator::TakeToken(const EventSubject& subject, Time now) {
  // A full bucket holds no information: forget it. So the map holds only jobs that had events recently.
  if (buckets_.size() > options_.capacity)
    std::erase_if(buckets_, [&](const auto& entry) {
      return now - entry.second.filled > options_.refill * options_.burst;
    });
  auto [it, fresh] = buckets_.try_emplace(IdOf(subject));
  Bucket& bucket = it->second;
  if (fresh)
    bucket.tokens = options_.burst;
  else
    bucket.tokens = std::min<double>(
        options_.burst, bucket.tokens + ToSeconds(now - bucket.filled) / ToSeconds(options_.refill));
  bucket.filled = now;
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

void EventCorrelator::Forget(Id id) {
  const auto it = series_.find(id);
  if (it == series_.end()) return;
  by_use_.erase(it->second.used);
  series_.erase(it);
  std::erase_if(due_, [&](const auto& entry) { return entry.second == id; });
}

void EventCorrelator::ForgetOld(Time now) {
  while (!by_use_.empty()) {
    const Series& oldest = series_.at(by_use_.back());
    if (now - oldest.last_seen <= options_.series_window || oldest.count != oldest.reported) return;
    Forget(Id(by_use_.back()));
  }
}

void EventCorrelator::Add(const EventSubject& subject, bool warning, const std::string& reason,
                          const std::string& note, Time now) {
  ForgetOld(now);
  const char* const kind = warning ? "warning" : "normal";
  Id id = IdOf(subject, {kind, reason, note});
  bool combined = false;
  auto it = series_.find(id);
  if (it == series_.end()) {
    // A new note for this reason. When there are too many of them, the rest become one series.
    if (similar_.size() > options_.capacity)
      std::erase_if(similar_, [&](const auto& e) { return now - e.second.since > options_.series_window; });
    const Id family = IdOf(subject, {kind, reason});
    Similar& similar = similar_[family];
    if (similar.notes == 0 || now - similar.since > options_.series_window) similar = {0, now};
    if (++similar.notes > options_.similar_limit) {
      id = family;
      combined = !note.empty();
      it = series_.find(id);
    }
  }
  if (it != series_.end() && now - it->second.last_seen > options_.series_window) {
    Forget(id);
    it = series_.end();
  }
  if (it != series_.end()) {
    Series& series = it->second;
    by_use_.splice(by_use_.begin(), by_use_, series.used);
    series.last_seen = now;
    if (series.combined) series.note = note;
    if (series.count++ == series.reported) due_.emplace(series.last_reported + options_.patch_interval, id);
    return;
  }
  if (!TakeToken(subject, now)) {
    ++dropped_;
    return;
  }
  if (series_.size() >= options_.capacity) Forget(Id(by_use_.back()));
  by_use_.push_front(id);
  Series series;
  series.namespace_ = subject.namespace_;
  series.combined = combined;
  series.name = fmt::format("{}.{}{:x}", subject.name, options_.salt, next_++);
  if (combined) series.note = note;
  series.last_seen = series.last_reported = now;
  series.used = by_use_.begin();
  writes_.create.push_back(
      {subject, series.name, warning, reason, combined ? "(and similar events) " + note : note});
  series_.emplace(id, std::move(series));
}

EventCorrelator::Writes EventCorrelator::Take(Time now) {
  while (!due_.empty() && due_.begin()->first <= now) {
    Series& series = series_.at(due_.begin()->second);
    due_.erase(due_.begin());
    series.reported = series.count;
    series.last_reported = now;
    writes_.update.push_back({series.namespace_, series.name, series.count,
                              series.combined ? "(and similar events) " + series.note : std::string()});
  }
  return std::exchange(writes_, {});
}

}  // namespace ringmaster::kube
