// SPDX-License-Identifier: Apache-2.0

// The digests that the workers of a run recorded on request, one file DIR/digests/NAME.jsonl per process of a
// worker. worker/library/step_digests.h writes them. One line of JSON each, the first one names the worker
// and the tensors:
//
//   {"digests":1,"run":"default/demo","tensors":["2.bias","2.weight"],"worker":"demo-1-0"}
//   {"generation":4294967297,"gradients":["9c5c...","07ab..."],"loss":0.69,"microBatch":0,"step":1}
//   {"generation":4294967297,"gradientNorm":0.5,"learningRate":0.001,"loss":0.7,"step":1}
//   {"generation":4294967297,"state":[["model.2.weight","1d20..."]],"step":1}
//
// Steps count from 1, and the state of step 0 is that with which the run began. Gradients are in the order of
// the tensors, null for one without a gradient. A hash is XXH3, 64 bits. A number that is not finite is
// "nan", "inf" or "-inf". `run` is the job; each start of a program without an agent is another run.
//
// A step that was interrupted is attempted again, so a run may have several records of one micro-batch; all
// of them must be equal. Values; LoadDigests reads files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace ringmaster::cli {

using Number = std::optional<double>;  // nullopt: not recorded

// Where a record comes from.
struct DigestSource {
  std::string worker;
  std::string file;
};

struct MicroBatchDigest {
  std::shared_ptr<const DigestSource> source;
  Number loss;
  Number weight;
  std::shared_ptr<const std::vector<std::string>> tensors;
  std::vector<std::optional<uint64_t>> gradients;  // by tensor
};

struct CommitDigest {
  std::shared_ptr<const DigestSource> source;
  Number loss;
  Number gradient_norm;
  Number learning_rate;
};

struct StateDigest {
  std::shared_ptr<const DigestSource> source;
  std::vector<std::pair<std::string, uint64_t>> arrays;
};

struct StepDigest {
  std::map<int64_t, std::vector<MicroBatchDigest>> micro_batches;  // by number
  std::vector<CommitDigest> commits;
  std::vector<StateDigest> states;
};

struct RunDigests {
  std::string name;  // as the user wrote it
  std::map<int64_t, StepDigest> steps;
};

// Reads the digests in `place`/digests, in the folder `place` itself, or in the file `place`. The torn last
// line of a worker that was killed is ignored. Errors: kNotFound when it has none, kCorrupt with the file and
// the line, kInvalid when the folder has records of several runs, kUnavailable when a file cannot be read.
Result<RunDigests> LoadDigests(const std::string& place);

}  // namespace ringmaster::cli
