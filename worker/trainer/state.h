// SPDX-License-Identifier: Apache-2.0

// The training state of one member: parameters, optimizer state, exponents and cursor, each twice.
//
// A step reads the current image and writes the other one; Commit swaps them. The image that was current is
// the one-step undo until the next Commit, at no extra copy: RollBack swaps back. Both images are memory of
// the device. What leaves the process (to peers, checkpoints, hashes) is host memory in the fabric's arenas:
// on the host the images themselves, else one mirror, brought up to date when it is asked for.
//
// Invariants: while present(), the current image is that of step(); nothing but Commit, RollBack and Adopt
// changes which image is current. Thread rule: the trainer's main thread; a checkpoint writer copies before
// Start returns. Errors: those of the device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/compute/device/device.h"
#include "worker/compute/engine/model.h"
#include "worker/compute/optimizer/optimizer.h"
#include "worker/data/dataset.h"
#include "worker/fabric/fabric.h"

namespace ringmaster::trainer {

class TrainState {
 public:
  // The arrays of an image on one side. state1 is empty for SGD.
  struct Arrays {
    std::span<float> params;
    std::span<float> state0;
    std::span<float> state1;
  };

  // One image of the state, on the device; exponents are host memory, and empty for fast numerics.
  struct Image : Arrays {
    std::span<int32_t> exponents;
    data::Cursor cursor;
    double loss = 0;  // of the step that led here; 0 before the first
  };

  // A part of the current image, in host memory, under its name in checkpoints.
  struct Part {
    std::string name;
    std::string type;
    std::span<std::byte> bytes;
  };

  // Both outlive the state.
  static Result<std::unique_ptr<TrainState>> Create(device::Device* device, fabric::Fabric* fabric,
                                                    const engine::Layout& layout, optimizer::Kind kind,
                                                    bool exact);

  bool present() const { return present_; }
  int64_t step() const { return step_; }
  // Of the current image's values: another number after everything that may have changed them.
  uint64_t version() const { return version_; }
  bool can_roll_back() const { return can_roll_back_; }
  const Image& current() const { return images_[current_]; }
  Image& next() { return images_[1 - current_]; }

  // next() is about to be written, or was not after all: what it holds of the step before is lost meanwhile.
  void InvalidateUndo() { can_roll_back_ = false; }
  void RestoreUndo() { can_roll_back_ = true; }
  // next() is the state of step() + 1 now.
  void Commit();
  // REQUIRES: can_roll_back().
  void RollBack();

  // Parts of the current image in a fixed order, to be sent, stored, or filled before Adopt.
  Result<std::vector<Part>> Parts();
  // The current image's parts were filled from outside: they are the state of `step`.
  Status Adopt(int64_t step, const data::Cursor& cursor, double loss);
  // The state before the first step.
  Status Initialise(const engine::Model& model, uint64_t seed);
  // What is here is worth nothing (a transfer is about to overwrite it).
  void Discard();

  Result<uint64_t> ParamsHash();
  Result<uint64_t> OptimizerHash();  // over everything but the parameters, step and cursor included

 private:
  TrainState(device::Device* device, optimizer::Kind kind) : device_(device), kind_(kind) {}

  // Between the current image and its host memory.
  Status UpdateMirror();
  Status UploadMirror();

  device::Device* const device_;
  const optimizer::Kind kind_;
  std::array<Image, 2> images_;
  std::array<Arrays, 2> host_;     // of each image; on another device both are the one mirror
  uint64_t mirrored_version_ = 0;  // that the mirror holds
  int current_ = 0;
  bool present_ = false;
  bool can_roll_back_ = false;
  int64_t step_ = 0;
  uint64_t version_ = 1;
};

}  // namespace ringmaster::trainer
