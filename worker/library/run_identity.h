// SPDX-License-Identifier: Apache-2.0

// What a program wants to train, and the texts by which members and checkpoints recognize that they belong to
// the same run. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "worker/checkpoint/identity.h"
#include "worker/library/gradient_sums.h"

namespace ringmaster::library {

struct Config {
  int64_t steps = 0;
  int micro_batches = 0;
  bool exact = true;
  int limbs = 1;
  int64_t samples_per_step = 0;  // 0: unknown
  uint64_t seed = 0;
  std::string fingerprint;  // of the configuration: equal on all members
  std::string data_fingerprint;
  std::string device_fingerprint;
  std::optional<int> gpu;  // the number, in this process, of the GPU whose memory has the gradients; unset:
                           // the host's memory
  std::string run;         // "namespace/name" of the job; empty: none
  std::string checkpoint_from;                    // spec.checkpoint.from
  std::optional<std::string> checkpoint_folder;   // unset: of the job
  std::optional<int64_t> checkpoint_every_steps;  // unset: of the job
  std::optional<int> checkpoint_keep;             // unset: of the job
  std::string digest_folder;                      // empty: no digests are recorded
  std::vector<Tensor> tensors;
};

// Returns a hash of what a run and a checkpoint that it continues must have in common.
std::string RunFingerprint(const Config& config);

// Returns the run and everything known that determines the bits of its state: what RunFingerprint covers, and
// the configuration of the program, such as the learning rate. The initial values do not count, since a run
// that continues replaces them; versions of libraries are notes.
checkpoint::Identity IdentityOf(const Config& config);

// Returns what all members must have in common, short enough for a message: when a worker differs, people see
// in which part. Each line of Config::fingerprint is "name: value".
std::string MembersFingerprint(const Config& config);

// Returns the text as a name that a message may carry: without quotes and control characters, and not too
// long. A hash takes the place of what is too much, so long texts that differ have different names.
std::string PlainName(std::string text);

// The names and sizes of the tensors, for a checkpoint, and what differs between those of a checkpoint and of
// this run, for people; empty: nothing.
Json DescribeTensors(const std::vector<Tensor>& tensors);
std::string DifferencesFrom(const Json& tensors, const Config& config);

}  // namespace ringmaster::library
