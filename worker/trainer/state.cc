#include "worker/trainer/state.h"

#include <algorithm>

#include "base/hash.h"
#include "worker/numerics/exact.h"

namespace ringmaster::trainer {
namespace {

template <class T>
Result<std::span<T>> AllocateArray(fabric::Fabric* fabric, int64_t elements, std::string_view label) {
  RM_ASSIGN(const std::span<std::byte> bytes,
            fabric->Allocate(static_cast<size_t>(elements) * sizeof(T), label));
  return std::span<T>(reinterpret_cast<T*>(bytes.data()), static_cast<size_t>(elements));
}

template <class T>
std::span<std::byte> Bytes(std::span<T> values) {
  return std::as_writable_bytes(values);
}

}  // namespace

Result<std::unique_ptr<TrainState>> TrainState::Create(fabric::Fabric* fabric, const engine::Layout& layout,
                                                       optimizer::Kind kind, bool exact) {
  std::unique_ptr<TrainState> state(new TrainState());
  state->kind_ = kind;
  for (Image& image : state->images_) {
    RM_ASSIGN(image.params, AllocateArray<float>(fabric, layout.elements, "params"));
    RM_ASSIGN(image.state0, AllocateArray<float>(fabric, layout.elements, "state0"));
    if (optimizer::StateArrays(kind) > 1) {
      RM_ASSIGN(image.state1, AllocateArray<float>(fabric, layout.elements, "state1"));
    }
    if (exact) {
      RM_ASSIGN(image.exponents,
                AllocateArray<int32_t>(fabric, layout.elements / engine::kBlock, "exponents"));
      std::ranges::fill(image.exponents, numerics::kUnknown);
    }
  }
  return state;
}

void TrainState::Commit() {
  CHECK(present_);
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

std::vector<TrainState::Part> TrainState::Parts() {
  Image& image = images_[current_];
  std::vector<Part> parts;
  parts.push_back({"params", "f32", Bytes(image.params)});
  const bool adam = kind_ == optimizer::Kind::kAdamW;
  parts.push_back({adam ? "adamw.m" : "sgd.momentum", "f32", Bytes(image.state0)});
  if (!image.state1.empty()) parts.push_back({"adamw.v", "f32", Bytes(image.state1)});
  if (!image.exponents.empty()) parts.push_back({"exponents", "i32", Bytes(image.exponents)});
  return parts;
}

void TrainState::Adopt(int64_t step, const data::Cursor& cursor, double loss) {
  images_[current_].cursor = cursor;
  images_[current_].loss = loss;
  step_ = step;
  ++version_;
  present_ = true;
  can_roll_back_ = false;
}

void TrainState::Discard() {
  present_ = false;
  can_roll_back_ = false;
}

uint64_t TrainState::ParamsHash() { return Hash64(Bytes(images_[current_].params)); }

uint64_t TrainState::OptimizerHash() {
  const Image& image = current();
  const std::array<int64_t, 3> scalars = {step_, image.cursor.epoch, image.cursor.position};
  uint64_t hash = Hash64(std::as_bytes(std::span(scalars)));
  for (const Part& part : Parts()) {
    if (part.name != "params") hash = Hash64(part.bytes, hash);
  }
  return hash;
}

}  // namespace ringmaster::trainer
