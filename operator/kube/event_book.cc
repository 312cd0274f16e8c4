#include "operator/kube/event_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ringmaster::kube {

bool EventBook::Pay(const EventSubject& subject, Time now) {
  // A bucket that is full again says nothing: forget it. This bounds the map by the jobs that spoke lately.
  if (buckets_.size() > options_.capacity)
    std::erase_if(buckets_, [&](const auto& entry) {
      return now - entry.second.filled > options_.refill * options_.burst;
    });
  auto [it, fresh] = buckets_.try_emplace(subject);
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

void EventBook::Forget(const SeriesKey& key) {
  const auto it = series_.find(key);
  if (it == series_.end()) return;
  by_use_.erase(it->second.used);
  series_.erase(it);
  std::erase_if(due_, [&](const auto& entry) { return entry.second == key; });
}

void EventBook::Note(const EventSubject& subject, bool warning, const std::string& reason,
                     const std::string& note, Time now) {
  SeriesKey key{subject, warning, reason, note};
  const SeriesKey family{subject, warning, reason, {}};
  auto it = series_.find(key);
  if (it == series_.end()) {
    // Another note of this reason. Too many of them are told as one.
    if (similar_.size() > options_.capacity)
      std::erase_if(similar_, [&](const auto& e) { return now - e.second.since > options_.series_window; });
    Similar& similar = similar_[family];
    if (similar.notes == 0 || now - similar.since > options_.series_window) similar = {0, now};
    if (++similar.notes > options_.similar_limit) {
      key = family;
      it = series_.find(key);
    }
  }
  if (it != series_.end() && now - it->second.last_seen > options_.series_window) {
    Forget(key);
    it = series_.end();
  }
  if (it != series_.end()) {
    Series& series = it->second;
    by_use_.splice(by_use_.begin(), by_use_, series.used);
    series.last_seen = now;
    series.note = note;
    if (series.count++ == series.told) due_.emplace(series.last_told + options_.patch_interval, key);
    return;
  }
  if (!Pay(subject, now)) {
    ++dropped_;
    return;
  }
  if (series_.size() >= options_.capacity) Forget(SeriesKey(by_use_.back()));
  by_use_.push_front(key);
  Series series;
  series.name = fmt::format("{}.{}{:x}", subject.name, options_.salt, next_++);
  series.note = note;
  series.last_seen = series.last_told = now;
  series.used = by_use_.begin();
  const bool combined = std::get<3>(key).empty() && !note.empty();
  todo_.make.push_back(
      {subject, series.name, warning, reason, combined ? "(and others like it) " + note : note});
  series_.emplace(key, std::move(series));
}

EventBook::Todo EventBook::Take(Time now) {
  while (!due_.empty() && due_.begin()->first <= now) {
    const SeriesKey key = due_.begin()->second;
    due_.erase(due_.begin());
    Series& series = series_.at(key);
    series.told = series.count;
    series.last_told = now;
    const bool combined = std::get<3>(key).empty() && !series.note.empty();
    todo_.count.push_back({std::get<0>(key).namespace_, series.name, series.count,
                           combined ? "(and others like it) " + series.note : std::string()});
  }
  return std::exchange(todo_, {});
}

}  // namespace ringmaster::kube
