// SPDX-License-Identifier: Apache-2.0

// TrainState is the training state of one member: parameters, optimizer state, exponents and cursor, as two
// images.
//
// A step reads the current image and writes the next one; Commit swaps them. The former current image is the
// one-step undo until the next step overwrites it, without an extra copy: RollBack swaps back. Both images
// are device memory. Whatever leaves the process (for peers, checkpoints, hashes) is host memory in the
// fabric's arenas: the images themselves if the device is the host, otherwise one mirror that is updated on
// demand.
// Hashes of the chunks of an image are computed where it lies when it is written: by the update, or by Adopt.
// So a member states the hash of its state without reading the state again.
// Invariants: while present(), the current image is the state of step(), and its hashes are known. Only
// Commit, RollBack and Adopt change which image is current or its contents.
//
// Not thread-safe; main thread only (a checkpoint writer copies the state before its Start returns). Errors:
// those of the device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/compute/device/device.h"
#include "worker/compute/engine/model.h"
#include "worker/compute/optimizer/optimizer.h"
#include "worker/data/dataset.h"
#include "worker/fabric/fabric.h"
#include "worker/trainer/host_device_buffer.h"

namespace ringmaster::trainer {

class TrainState {
 public:
  // The arrays of an image, on the device or on the host. state1 is empty for SGD.
  struct Arrays {
    std::span<float> params;
    std::span<float> state0;
    std::span<float> state1;
  };

  // One image of the state, on the device; exponents are host memory, and empty for fast numerics.
  struct Image : Arrays {
    std::span<int32_t> exponents;
    data::Cursor cursor;
    double loss = 0;  // of the step that produced this state; 0 before the first
  };

  // A part of the current image, in host memory, with its name in checkpoints.
  struct Part {
    std::string name;
    std::string type;
    std::span<std::byte> bytes;
  };

  // By these, members compare their states: a hash of the hashes of all chunks (base/hash.h).
  struct Hashes {
    uint64_t params = 0;
    uint64_t optimizer = 0;  // over everything except the parameters; includes step and cursor
    bool operator==(const Hashes&) const = default;
  };

  // As text, for checkpoints.
  static std::string Text(const Hashes& hashes);
  // Returns the hashes of a copy of the parts, in their order.
  static Hashes HashesOf(std::span<const checkpoint::Array> parts, int64_t step, const data::Cursor& cursor);

  // REQUIRES: device and fabric outlive the state.
  static Result<std::unique_ptr<TrainState>> Create(device::Device* device, fabric::Fabric* fabric,
                                                    const engine::Layout& layout, optimizer::Kind kind,
                                                    bool exact);

  bool present() const { return present_; }
  int64_t step() const { return step_; }
  // Changes whenever the values of the current image may have changed.
  uint64_t version() const { return version_; }
  bool can_roll_back() const { return can_roll_back_; }
  const Image& current() const { return images_[current_]; }
  Image& next() { return images_[1 - current_]; }
  // Where the update of next() stores the hashes of its chunks; on the device.
  optimizer::ChunkHashes next_hashes() const { return HashesOf(hashes_[1 - current_].device); }

  // InvalidateUndo: next(), which holds the undo, is about to be overwritten. RestoreUndo: it was not
  // overwritten after all.
  void InvalidateUndo() { can_roll_back_ = false; }
  void RestoreUndo() { can_roll_back_ = true; }
  // Makes next() the current image, of step() + 1.
  void Commit();
  // REQUIRES: can_roll_back().
  void RollBack();

  // Returns the parts of the current image in a fixed order: to send, to store, or to fill before Adopt.
  Result<std::vector<Part>> Parts();
  // Declares that the caller has filled the parts of the current image with the state of `step`.
  Status Adopt(int64_t step, const data::Cursor& cursor, double loss);
  // For a member that gets the state piece by piece while the others train (join_transfer.h). Follow: the
  // state is absent, but is at `step`, and Commit takes it along. Complete: the current image is filled.
  // Errors: kCorrupt when its hashes are not `expected`; then the state is absent.
  void Follow(int64_t step, const data::Cursor& cursor, double loss);
  Status Complete(const Hashes& expected);
  // A range of elements of the current image: the same range of every array, `piece_bytes` of each. The
  // update of an element reads only this element of the arrays, so a piece that is complete stays so.
  using Piece = std::vector<HostDeviceBuffer<std::byte>>;
  // Returns the pieces of the current image, to copy some of them. Afterwards the host's copy of the image is
  // regarded as overwritten.
  std::vector<Piece> Pieces(size_t piece_bytes);
  // Of the current image, without the pieces' arrays.
  std::span<int32_t> Exponents() { return images_[current_].exponents; }
  // Sets the state before the first step.
  Status Initialise(const engine::Model& model, uint64_t seed);
  // The first half of Initialise: fills the host's copy, which Adopt(0, {}, 0) then takes. May run on another
  // thread while this one does not use the copy. Returns early soon after *cancel becomes true.
  void FillInitial(const engine::Model& model, uint64_t seed, const std::atomic<bool>* cancel = nullptr);
  // Marks the state as absent: a transfer is about to overwrite it.
  void Discard();

  // The hashes of the current image, taken when it was written. REQUIRES: present().
  Result<Hashes> StateHashes();
  // The same of the state of step() - 1. REQUIRES: can_roll_back().
  Result<Hashes> UndoHashes();
  // The hashes that users see at the end of a job: over the bytes of the arrays, which are read for it.
  Result<uint64_t> ParamsHash();
  Result<uint64_t> OptimizerHash();  // over everything except the parameters; includes step and cursor

 private:
  TrainState(device::Device* device, optimizer::Kind kind) : device_(device), kind_(kind) {}

  Status HashCurrent();
  Result<Hashes> HashesOfImage(int image, int64_t step);
  // Copy the current image to its host memory, and back.
  Status UpdateMirror();
  Status UploadMirror();
  optimizer::ChunkHashes HashesOf(std::span<uint64_t> of_image) const;

  device::Device* const device_;
  const optimizer::Kind kind_;
  std::array<Image, 2> images_;
  std::array<Arrays, 2> host_;  // of each image; with a separate device both are the same mirror
  std::array<HostDeviceBuffer<uint64_t>, 2> hashes_;  // of the chunks of each image, array by array
  size_t chunks_ = 0;                                 // of one array
  uint64_t mirrored_version_ = 0;                     // version of the mirror's contents; 0: none
  int current_ = 0;
  bool present_ = false;
  bool following_ = false;
  bool can_roll_back_ = false;
  int64_t step_ = 0;
  uint64_t version_ = 1;
};

}  // namespace ringmaster::trainer
