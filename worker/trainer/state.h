// The training state of one member: parameters, optimizer state, exponents and cursor, each twice.
//
// A step reads the current image and writes the other one; Commit swaps them. The image that was current is
// the one-step undo until the next Commit, at no extra copy: RollBack swaps back. Both images live in the
// fabric's arenas, so peers that need the state can take it without staging.
//
// Invariants: while present(), the current image is that of step(); nothing but Commit, RollBack and Adopt
// changes which image is current. Thread rule: the trainer's main thread; a checkpoint writer copies before
// Start returns.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/data/dataset.h"
#include "worker/engine/layout.h"
#include "worker/fabric/fabric.h"
#include "worker/optimizer/optimizer.h"

namespace ringmaster::trainer {

class TrainState {
 public:
  // One image of the state. state1 is empty for SGD, exponents for fast numerics.
  struct Image {
    std::span<float> params;
    std::span<float> state0;
    std::span<float> state1;
    std::span<int32_t> exponents;
    data::Cursor cursor;
    double loss = 0;  // of the step that led here; 0 before the first
  };

  // A part of the current image under its name in checkpoints.
  struct Part {
    std::string name;
    std::string type;
    std::span<std::byte> bytes;
  };

  static Result<std::unique_ptr<TrainState>> Create(fabric::Fabric* fabric, const engine::Layout& layout,
                                                    optimizer::Kind kind, bool exact);

  bool present() const { return present_; }
  int64_t step() const { return step_; }
  // Of the current image's values: another number after everything that may have changed them.
  uint64_t version() const { return version_; }
  bool can_roll_back() const { return can_roll_back_; }
  const Image& current() const { return images_[current_]; }
  Image& next() { return images_[1 - current_]; }

  // next() is the state of step() + 1 now.
  void Commit();
  // REQUIRES: can_roll_back().
  void RollBack();

  // Parts of the current image in a fixed order, to be sent, stored, or filled before Adopt.
  std::vector<Part> Parts();
  // The current image was filled from outside: it is the state of `step`.
  void Adopt(int64_t step, const data::Cursor& cursor, double loss);
  // What is here is worth nothing (a transfer is about to overwrite it).
  void Discard();

  uint64_t ParamsHash();
  uint64_t OptimizerHash();  // over everything but the parameters, step and cursor included

 private:
  TrainState() = default;

  optimizer::Kind kind_ = optimizer::Kind::kAdamW;
  std::array<Image, 2> images_;
  int current_ = 0;
  bool present_ = false;
  bool can_roll_back_ = false;
  int64_t step_ = 0;
  uint64_t version_ = 1;
};

}  // namespace ringmaster::trainer
