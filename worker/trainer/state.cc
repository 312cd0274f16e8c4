// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "worker/compute/numerics/exact.h"

namespace ringmaster::trainer {
namespace {

using Field = std::span<float> TrainState::Arrays::*;

struct Named {
  Field field;
  const char* label;
};
constexpr std::array<Named, 3> kFields = {{{&TrainState::Arrays::params, "params"},
                                           {&TrainState::Arrays::state0, "state0"},
                                           {&TrainState::Arrays::state1, "state1"}}};

}  // namespace

Result<std::unique_ptr<TrainState>> TrainState::Create(device::Device* device, fabric::Fabric* fabric,
                                                       const engine::Layout& layout, optimizer::Kind kind,
                                                       bool exact) {
  std::unique_ptr<TrainState> state(new TrainState(device, kind));
  state->chunks_ = HashChunkCount(static_cast<size_t>(layout.elements) * sizeof(float));
  const auto hashes = static_cast<int64_t>(state->chunks_) * (1 + optimizer::StateArrays(kind));
  for (size_t i = 0; i < 2; ++i) {
    Image& image = state->images_[i];
    for (const auto& [field, label] : kFields) {
      if (field == &Arrays::state1 && optimizer::StateArrays(kind) < 2) continue;
      if (i == 0 || device->OnHost()) {
        RM_ASSIGN(const HostDeviceBuffer<float> twin,
                  HostDeviceBuffer<float>::Create(fabric, device, layout.elements, label));
        image.*field = twin.device;
        state->host_[i].*field = twin.host;
      } else {
        RM_ASSIGN(const std::span<std::byte> bytes,
                  device->Allocate(static_cast<size_t>(layout.elements) * sizeof(float), label));
        image.*field = SpanOf<float>(bytes);
        state->host_[i].*field = state->host_[0].*field;
      }
    }
    RM_ASSIGN(state->hashes_[i], HostDeviceBuffer<uint64_t>::Create(fabric, device, hashes, "hashes"));
    if (exact) {
      const auto blocks = static_cast<size_t>(layout.elements / engine::kBlock);
      RM_ASSIGN(const std::span<std::byte> exponents,
                fabric->Allocate(blocks * sizeof(int32_t), "exponents"));
      image.exponents = SpanOf<int32_t>(exponents);
      std::ranges::fill(image.exponents, numerics::kUnknown);
    }
  }
  return state;
}

void TrainState::Commit() {
  CHECK(present_ || following_);
  current_ = 1 - current_;
  can_roll_back_ = true;
  ++step_;
  ++version_;
}

void TrainState::RollBack() {
  CHECK(present_ && can_roll_back_);
  current_ = 1 - current_;
  can_roll_back_ = false;
  --step_;
  ++version_;
}

Result<std::vector<TrainState::Part>> TrainState::Parts() {
  if (present_) RM_TRY(UpdateMirror());
  const Arrays& host = host_[current_];
  std::vector<Part> parts;
  parts.push_back({"params", "f32", std::as_writable_bytes(host.params)});
  const std::span<const std::string_view> names = optimizer::StateNames(kind_);
  parts.push_back({std::string(names[0]), "f32", std::as_writable_bytes(host.state0)});
  if (names.size() > 1) parts.push_back({std::string(names[1]), "f32", std::as_writable_bytes(host.state1)});
  const std::span<int32_t> exponents = images_[current_].exponents;
  if (!exponents.empty()) parts.push_back({"exponents", "i32", std::as_writable_bytes(exponents)});
  return parts;
}

Status TrainState::Adopt(int64_t step, const data::Cursor& cursor, double loss) {
  images_[current_].cursor = cursor;
  images_[current_].loss = loss;
  step_ = step;
  ++version_;
  can_roll_back_ = false;
  present_ = false;
  following_ = false;
  RM_TRY(UploadMirror());
  RM_TRY(HashCurrent());
  present_ = true;
  return Ok();
}

Status TrainState::HashCurrent() {
  const Image& image = images_[current_];
  const optimizer::ChunkHashes hashes = HashesOf(hashes_[current_].device);
  RM_TRY(device_->Hash(image.params, hashes.params));
  RM_TRY(device_->Hash(image.state0, hashes.state0));
  RM_TRY(device_->Hash(image.state1, hashes.state1));
  return device_->Sync();
}

void TrainState::Follow(int64_t step, const data::Cursor& cursor, double loss) {
  images_[current_].cursor = cursor;
  images_[current_].loss = loss;
  step_ = step;
  ++version_;
  present_ = can_roll_back_ = false;
  following_ = true;
}

Status TrainState::Complete(const Hashes& expected) {
  CHECK(following_);
  RM_TRY(HashCurrent());
  following_ = can_roll_back_ = false;  // the other image is still in part garbage
  present_ = true;
  ++version_;
  RM_ASSIGN(const Hashes held, StateHashes());
  if (held == expected) return Ok();
  Discard();
  return Error{Code::kCorrupt, fmt::format("the received state of step {} does not match its hashes", step_)};
}

std::vector<TrainState::Piece> TrainState::Pieces(size_t piece_bytes) {
  mirrored_version_ = 0;
  std::vector<Piece> pieces;
  const size_t bytes = host_[current_].params.size_bytes();
  for (size_t begin = 0; begin < bytes; begin += piece_bytes) {
    Piece& piece = pieces.emplace_back();
    for (const auto& [field, label] : kFields) {
      const std::span<std::byte> host = std::as_writable_bytes(host_[current_].*field);
      const std::span<std::byte> device = std::as_writable_bytes(images_[current_].*field);
      if (host.empty()) continue;
      const size_t count = std::min(piece_bytes, bytes - begin);
      piece.push_back({host.subspan(begin, count), device.subspan(begin, count)});
    }
  }
  return pieces;
}

Status TrainState::Initialise(const engine::Model& model, uint64_t seed) {
  FillInitial(model, seed);
  return Adopt(0, {}, 0);
}

void TrainState::FillInitial(const engine::Model& model, uint64_t seed, const std::atomic<bool>* cancel) {
  const Arrays& host = host_[current_];
  model.Initialise(seed, host.params, cancel);
  std::ranges::fill(host.state0, 0.0f);
  std::ranges::fill(host.state1, 0.0f);
  std::ranges::fill(images_[current_].exponents, numerics::kUnknown);
}

void TrainState::Discard() {
  present_ = following_ = false;
  can_roll_back_ = false;
}

Status TrainState::UpdateMirror() {
  if (device_->OnHost() || mirrored_version_ == version_) return Ok();
  mirrored_version_ = 0;
  for (const auto& [field, label] : kFields) {
    RM_TRY(HostDeviceBuffer<float>({host_[current_].*field, images_[current_].*field}).Download(device_));
  }
  RM_TRY(device_->Sync());
  mirrored_version_ = version_;
  return Ok();
}

Status TrainState::UploadMirror() {
  if (device_->OnHost()) return Ok();
  mirrored_version_ = 0;
  for (const auto& [field, label] : kFields) {
    RM_TRY(HostDeviceBuffer<float>({host_[current_].*field, images_[current_].*field}).Upload(device_));
  }
  RM_TRY(device_->Sync());
  mirrored_version_ = version_;
  return Ok();
}

optimizer::ChunkHashes TrainState::HashesOf(std::span<uint64_t> of_image) const {
  optimizer::ChunkHashes hashes;
  hashes.params = of_image.first(chunks_);
  hashes.state0 = of_image.subspan(chunks_, chunks_);
  hashes.state1 = of_image.subspan(2 * chunks_);
  return hashes;
}

Result<TrainState::Hashes> TrainState::StateHashes() {
  CHECK(present_);
  return HashesOfImage(current_, step_);
}

Result<TrainState::Hashes> TrainState::UndoHashes() {
  CHECK(present_ && can_roll_back_);
  return HashesOfImage(1 - current_, step_ - 1);
}

Result<TrainState::Hashes> TrainState::HashesOfImage(int index, int64_t step) {
  const Image& image = images_[index];
  const HostDeviceBuffer<uint64_t>& chunks = hashes_[index];
  RM_TRY(chunks.Download(device_));
  RM_TRY(device_->Sync());
  const std::array<int64_t, 3> scalars = {step, image.cursor.epoch, image.cursor.position};
  Hashes hashes;
  hashes.params = Hash64(std::as_bytes(chunks.host.first(chunks_)));
  hashes.optimizer = Hash64(std::as_bytes(std::span(scalars)));
  hashes.optimizer = Hash64(std::as_bytes(chunks.host.subspan(chunks_)), hashes.optimizer);
  hashes.optimizer = Hash64(std::as_bytes(image.exponents), hashes.optimizer);
  return hashes;
}

std::string TrainState::Text(const Hashes& hashes) {
  return HashHex(hashes.params) + "-" + HashHex(hashes.optimizer);
}

TrainState::Hashes TrainState::HashesOf(std::span<const checkpoint::Array> parts, int64_t step,
                                        const data::Cursor& cursor) {
  std::vector<uint64_t> params;
  std::vector<uint64_t> others;
  std::span<const std::byte> exponents;
  for (const checkpoint::Array& part : parts) {
    if (part.name == "exponents") {
      exponents = part.bytes;
      continue;
    }
    std::vector<uint64_t>& chunks = part.name == "params" ? params : others;
    const size_t count = HashChunkCount(part.bytes.size());
    chunks.resize(chunks.size() + count);
    HashChunks(part.bytes, std::span(chunks).last(count));
  }
  const std::array<int64_t, 3> scalars = {step, cursor.epoch, cursor.position};
  Hashes hashes;
  hashes.params = Hash64(std::as_bytes(std::span(params)));
  hashes.optimizer = Hash64(std::as_bytes(std::span(scalars)));
  hashes.optimizer = Hash64(std::as_bytes(std::span(others)), hashes.optimizer);
  hashes.optimizer = Hash64(exponents, hashes.optimizer);
  return hashes;
}

Result<uint64_t> TrainState::ParamsHash() {
  RM_TRY(UpdateMirror());
  return Hash64(std::as_bytes(host_[current_].params));
}

Result<uint64_t> TrainState::OptimizerHash() {
  const Image& image = current();
  const std::array<int64_t, 3> scalars = {step_, image.cursor.epoch, image.cursor.position};
  uint64_t hash = Hash64(std::as_bytes(std::span(scalars)));
  RM_ASSIGN(const std::vector<Part> parts, Parts());
  for (const Part& part : parts) {
    if (part.name != "params") hash = Hash64(part.bytes, hash);
  }
  return hash;
}

}  // namespace ringmaster::trainer
