// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/checkpoint_saver.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/log.h"
#include "worker/checkpoint/attempt.h"
#include "worker/trainer/waiting.h"

namespace ringmaster::trainer {

using agent::Activity;

namespace {

// How long rank 0 waits for a disk before it looks for an order again.
constexpr Duration kDiskPoll = milliseconds(10);
// A failed last checkpoint is tried again for this long: a disk that is full, or a server that is away, for a
// moment must not cost the result of the whole run. The state stays in memory meanwhile.
constexpr Duration kSaveRetries = seconds(120);
constexpr Duration kFirstSavePause = seconds(1);
constexpr Duration kLongestSavePause = seconds(15);
// How long training waits, when a checkpoint is due, for the previous one to be written.
constexpr Duration kCheckpointPatience = seconds(1);

}  // namespace

std::string MissingCheckpoint(const std::string& folder, int64_t floor, const checkpoint::Loaded* found) {
  std::string seen = fmt::format("{} has no checkpoint", folder);
  if (found != nullptr) {
    seen = fmt::format("the newest that can be loaded is {}", found->path);
    for (const std::string& skipped : found->skipped) seen += "; skipped " + skipped;
  }
  const char* const node = std::getenv("RINGMASTER_NODE");
  const std::string where = node == nullptr || *node == '\0' ? "" : fmt::format(" on node {}", node);
  return fmt::format(
      "the checkpoint of step {} is missing{}: {}. Restore it, or give all workers the folder that has it "
      "(spec.checkpoint.path); to start over, create the job again with another folder",
      floor, where, seen);
}

Result<bool> CheckpointSaver::OpenWriter(Duration limit) {
  if (writer_ != nullptr) return true;
  if (opening_ == nullptr) {
    opening_ = std::make_unique<Opening>();
    opening_->work = std::make_unique<BackgroundWork>([this, opening = opening_.get()] {
      opening->opened = checkpoint::Writer::Create(options_.folder, options_.keep, options_.member);
    });
  }
  if (!opening_->work->Wait(limit)) return false;
  const std::unique_ptr<Opening> done = std::move(opening_);
  RM_ASSIGN(writer_, std::move(done->opened));
  return true;
}

void CheckpointSaver::ContinuedFrom(int64_t step, Json parent) {
  published_step_ = step;
  parent_ = std::move(parent);
}

void CheckpointSaver::BeginGeneration(bool root, bool new_attempt) {
  if (options_.folder.empty()) return;
  const bool was_root = std::exchange(root_, root);
  if (new_attempt) {
    attempt_.reset();
    if (look_ != nullptr) look_->forgotten = true;
  }
  if (root && (new_attempt || !was_root) && look_ == nullptr) StartLook();
}

void CheckpointSaver::StartLook() {
  look_ = std::make_unique<Look>();
  look_->work = std::make_unique<BackgroundWork>([this, look = look_.get()] {
    look->owner = checkpoint::OwnerOf(options_.folder);
    look->parent = checkpoint::FindParent(options_.folder, options_.identity);
  });
}

bool CheckpointSaver::Looked(Duration limit) {
  if (look_ == nullptr && attempt_.has_value()) return true;
  if (look_ == nullptr) StartLook();
  if (!look_->work->Wait(limit)) return false;
  const std::unique_ptr<Look> done = std::move(look_);
  if (done->forgotten) return false;  // the next call looks again
  attempt_ = done->owner.ok() ? *done->owner : std::string();
  if (!done->owner.ok()) log::Warn("checkpoint: {}", done->owner.error().message);
  if (parent_.is_null()) parent_ = std::move(done->parent);
  return true;
}

Result<checkpoint::Snapshot> CheckpointSaver::TakeSnapshot() {
  RM_ASSIGN(checkpoint::Snapshot snapshot, options_.take_snapshot());
  snapshot.model = options_.identity.model;
  snapshot.meta["identity"] = checkpoint::DescribeIdentity(options_.identity, parent_);
  snapshot.attempt = attempt_;
  return snapshot;
}

void CheckpointSaver::NoteRefusal(const Error& error) {
  if (error.code == Code::kConflict || error.code == Code::kGone) refused_ = error;
}

void CheckpointSaver::SavePeriodic(int64_t step) {
  if (const Status saved = StartPeriodic(step); !saved.ok()) {
    log::Error("checkpoint of step {}: {}; training continues", step, saved.error().message);
    options_.reporter->CheckpointFailed(saved.error().message);
  }
}

Status CheckpointSaver::StartPeriodic(int64_t step) {
  const Waiting waiting(options_.page, Activity::kSaving);
  RM_ASSIGN(const bool open, OpenWriter(kCheckpointPatience));
  if (!open || !Looked(kCheckpointPatience) || !writer_->Idle(kCheckpointPatience)) {
    log::Warn(
        "checkpoint of step {}: skipped, the previous one is still being written; "
        "increase spec.checkpoint.everySteps to give the disk more time",
        step);
    return Ok();
  }
  RM_ASSIGN(const checkpoint::Snapshot snapshot, TakeSnapshot());
  return writer_->Start(snapshot);
}

Status CheckpointSaver::SaveLast(fabric::Communicator* comm, const std::atomic<bool>* cancel, int64_t step,
                                 std::optional<std::string>* fatal) {
  const bool writes = comm->rank() == 0;
  if (options_.page != nullptr) options_.page->SetActivity(writes ? Activity::kSaving : Activity::kWaiting);
  Status saved;
  const auto done = [&] {
    const Result<bool> tried = TryToSaveLast(step);
    if (!tried.ok()) saved = tried.error();
    return !tried.ok() || *tried;
  };
  RM_TRY(WaitForRoot(comm, 0, cancel, done));
  if (!saved.ok() && saved.error().code == Code::kConflict) {
    *fatal = saved.error().message;
    return Error{Code::kInvalid, saved.error().message};
  }
  if (!saved.ok() && saved.error().code == Code::kGone) return saved;
  if (!saved.ok()) {
    *fatal = fmt::format(
        "the checkpoint of step {} could not be written within {:.0f} s: {}; free some disk space and run "
        "again",
        step, ToSeconds(kSaveRetries), saved.error().message);
    return saved;
  }
  if (writes) ReportPublished();
  return Ok();
}

Result<bool> CheckpointSaver::TryToSaveLast(int64_t step) {
  if (last_.step != step) {
    last_ = {};
    last_.step = step;
  }
  if (Now() < last_.next_attempt) {
    std::this_thread::sleep_for(kDiskPoll);
    return false;
  }
  Result<bool> written = WriteLast();
  if (written.ok()) return written;
  NoteRefusal(written.error());
  if (refused_.has_value()) return *refused_;
  last_.started = false;
  const Time now = Now();
  if (!last_.failing_since.has_value()) last_.failing_since = now;
  if (now - *last_.failing_since > kSaveRetries) return written.error();
  last_.pause =
      last_.pause == Duration::zero() ? kFirstSavePause : std::min(last_.pause * 2, kLongestSavePause);
  last_.next_attempt = now + last_.pause;
  if (options_.page != nullptr) options_.page->Heartbeat();  // the hang watch limits each attempt
  const std::string text = fmt::format("{}; the last checkpoint is tried again in {:.0f} s",
                                       written.error().message, ToSeconds(last_.pause));
  log::Error("{}", text);
  options_.reporter->CheckpointFailed(text);
  return false;
}

Result<bool> CheckpointSaver::WriteLast() {
  RM_ASSIGN(const bool open, OpenWriter(kDiskPoll));
  // A write may be in progress: of a periodic checkpoint, or of this one, started by an earlier generation.
  if (!open || !Looked(kDiskPoll) || !writer_->Idle(kDiskPoll)) return false;
  if (!last_.started) {
    RM_ASSIGN(const checkpoint::Snapshot snapshot, TakeSnapshot());
    log::Info("writing the last checkpoint step={}", snapshot.step);
    RM_TRY(writer_->Start(snapshot));
    last_.started = true;
    return false;
  }
  RM_TRY(writer_->Wait());
  return true;
}

void CheckpointSaver::ReportPublished() {
  if (writer_ == nullptr) return;
  const auto published = writer_->Poll();
  if (!published.ok()) {
    NoteRefusal(published.error());
    log::Error("checkpoint: {}; training continues", published.error().message);
    options_.reporter->CheckpointFailed(published.error().message);
    return;
  }
  if (*published <= published_step_) return;
  published_step_ = *published;
  options_.reporter->CheckpointPublished(published_step_);
}

}  // namespace ringmaster::trainer
