// SPDX-License-Identifier: Apache-2.0

// The part of the trainer that loads checkpoints, and describes the state for those that it writes.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "worker/compute/numerics/exact.h"
#include "worker/trainer/agree.h"
#include "worker/trainer/root_work.h"
#include "worker/trainer/trainer.h"

namespace ringmaster::trainer {

using agent::Activity;

namespace {

// How long rank 0 waits for a disk before it looks for an order again.
constexpr Duration kDiskPoll = milliseconds(10);
constexpr Duration kLongLoad = seconds(2);  // then users see how far it is

}  // namespace

Status Trainer::LoadOnRoot(int root, int64_t floor) {
  if (comm_->rank() == root) {
    parts_.page->SetActivity(Activity::kStarting);
    if (loader_ == nullptr) {
      state_->Discard();  // no longer wanted, and the loader may overwrite it
      loader_ = std::make_unique<StateLoader>(StateLoader::Options{.folder = parts_.config.checkpoint_path,
                                                                   .identity = identity_,
                                                                   .member = parts_.member,
                                                                   .model = parts_.model.get(),
                                                                   .seed = parts_.config.seed,
                                                                   .state = state_.get()});
    }
  }
  Time note_at = Now() + kLongLoad;
  RM_TRY(WaitForRoot(comm_.get(), root, &parts_.channel->cancelled(), [this, &note_at] {
    const bool loaded = loader_->Wait(kDiskPoll);
    if (!loaded && Now() >= note_at) {
      const int percent = loader_->Percent();
      reporter_.NoteOfAnyMember(percent < 0 ? "preparing the state"
                                            : fmt::format("loading the checkpoint, {} %", percent));
      note_at += seconds(1);
    }
    return loaded;
  }));
  if (comm_->rank() != root) return Ok();
  const std::unique_ptr<StateLoader> loader = std::move(loader_);
  return AdoptLoaded(*loader, floor);
}

Status Trainer::AdoptLoaded(const StateLoader& loader, int64_t floor) {
  const std::optional<Result<checkpoint::Loaded>>& found = loader.found();
  if (found.has_value() && !found->ok()) {
    // What cannot be read here and now may be readable on another node, or later: the process ends, not the
    // job.
    if (found->error().code == Code::kUnavailable) return Error{Code::kGone, found->error().message};
    fatal_ = found->error().message;
    return found->error();
  }
  if (found.has_value() && (*found)->step < floor && (*found)->skipped_unread)
    return Error{Code::kGone, (*found)->skipped.front()};
  if (found.has_value() && (*found)->step > parts_.config.steps) {
    fatal_ = fmt::format(
        "{}: has {} steps, more than spec.training.steps, which is {}; raise it, or give the job "
        "another folder",
        (*found)->path, (*found)->step, parts_.config.steps);
    return Error{Code::kInvalid, *fatal_};
  }
  if ((found.has_value() ? (*found)->step : -1) < floor) {
    fatal_ = MissingCheckpoint(parts_.config.checkpoint_path, floor, found.has_value() ? &**found : nullptr);
    return Error{Code::kInvalid, *fatal_};
  }
  if (!found.has_value()) {
    RM_TRY(state_->Adopt(0, {}, 0));
    log::Info("starting from seed={} parameters={}", parts_.config.seed, layout_.trainable);
    if (!loader.note().empty()) {
      log::Warn("{}", loader.note());
      reporter_.NoteOfAnyMember(loader.note());
    }
    return Ok();
  }
  const checkpoint::Loaded& loaded = **found;
  for (const std::string& skipped : loaded.skipped) reporter_.CheckpointSkipped(skipped);
  return Load(loaded);
}

Status Trainer::Load(const checkpoint::Loaded& loaded) {
  RM_ASSIGN(const std::vector<TrainState::Part> parts, state_->Parts());
  for (const TrainState::Part& part : parts) {
    const auto* found = loaded.Find(part.name);
    if (found == nullptr && part.name == "exponents" && !loaded.changed.empty()) {
      const std::span<int32_t> exponents = state_->Exponents();  // the run before had other numerics
      std::ranges::fill(exponents, numerics::kUnknown);
      continue;
    }
    if (found == nullptr || found->type != part.type || found->bytes.size() != part.bytes.size()) {
      fatal_ = fmt::format(
          "{}: array {} is missing or has another size; remove the checkpoint or run with --fresh",
          loaded.path, part.name);
      return Error{Code::kInvalid, *fatal_};
    }
    std::ranges::copy(found->bytes, part.bytes.begin());
  }
  RM_ASSIGN(data::Cursor cursor, CursorFromDescription(loaded.meta));
  const auto of_data = [](const std::string& change) { return change.starts_with("spec.training.data"); };
  if (std::ranges::any_of(loaded.changed, of_data)) cursor = {};  // its position is one in other data
  if (loaded.meta.contains("records")) reporter_.Restore(loaded.meta["records"]);
  RM_TRY(state_->Adopt(loaded.step, cursor, reporter_.last().has_value() ? reporter_.last()->loss : 0));
  RM_ASSIGN(const TrainState::Hashes held, state_->StateHashes());
  if (loaded.changed.empty() && !loaded.state.empty() && TrainState::Text(held) != loaded.state) {
    state_->Discard();
    fatal_ = fmt::format("{}: has the state {}, and the members of the run agreed on {}; remove it",
                         loaded.path, TrainState::Text(held), loaded.state);
    return Error{Code::kCorrupt, *fatal_};
  }
  saver_.ContinuedFrom(loaded.step, loaded.parent);
  log::Info("continuing from {} step={}", loaded.path, loaded.step);
  reporter_.ContinuedWithChanges(loaded.path, loaded.AllChanges());
  AdoptDevicePlan(loaded.meta, parts_.device.get());
  return Ok();
}

Result<checkpoint::Snapshot> Trainer::TakeSnapshot() {
  checkpoint::Snapshot snapshot;
  snapshot.step = state_->step();
  const data::Cursor cursor = state_->current().cursor;
  snapshot.meta = DescribeRun(parts_.config, layout_, cursor);
  RM_ASSIGN(const TrainState::Hashes held, state_->StateHashes());
  snapshot.state = TrainState::Text(held);
  snapshot.hash_state = [step = snapshot.step, cursor](const std::vector<checkpoint::Array>& arrays) {
    return TrainState::Text(TrainState::HashesOf(arrays, step, cursor));
  };
  snapshot.meta["records"] = reporter_.RecordsForCheckpoint();
  snapshot.meta["device"] = DescribeDevice(*parts_.device);
  RM_ASSIGN(const std::vector<TrainState::Part> parts, state_->Parts());
  for (const TrainState::Part& part : parts) snapshot.arrays.push_back({part.name, part.type, part.bytes});
  return snapshot;
}

}  // namespace ringmaster::trainer
