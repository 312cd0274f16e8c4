// SPDX-License-Identifier: Apache-2.0

// The format of DIR/metrics.jsonl, and a reader that is fast enough for a million steps. A newcomer to
// cli/history starts here; gang_timeline.h computes the picture of the workers from run_event.h.
//
// One line of JSON per committed step:
//
//   {"step":1,"loss":4.8556961474823765,"lr":0.0006,"gradNorm":2.92438,"seconds":0.29376,
//    "samples":32,"generation":4294967297,"workers":4}                            (in one line)
//   [2,4.7423057556152344,0.0006,2.51104,0.28102]
//
//   [3,4.6512098312377930,0.0006,2.39112,0.30025,32,4294967298,3]
//
// The first line of each run is an object. The lines that follow are arrays of its values in its order: of
// all eight when the samples, the generation or the number of workers change, otherwise of the first five.
// The text of the loss is exact, so parsing it returns the same bits; the other decimals are rounded. A value
// that is not a number is null. An array of five takes at most 75 bytes.
//
// The reader also accepts objects in the place of arrays, in which a missing member keeps its value; versions
// before this format wrote such files.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rendezvous/messages.h"

namespace ringmaster::cli {

// Returns a line with every member, without a newline, for programs that read a stream of steps.
std::string FullStepLine(const rendezvous::StepRecord& record);

// Writes the lines of one file.
class StepLineWriter {
 public:
  // Returns the next line, without a newline.
  std::string Line(const rendezvous::StepRecord& record);

 private:
  rendezvous::StepRecord before_;  // its samples, generation and workers are in the file; workers 0: no line
};

// Reads lines in pieces, so that it can follow a file that grows.
class StepLineReader {
 public:
  StepLineReader();
  ~StepLineReader();
  StepLineReader(StepLineReader&&) noexcept;

  // Appends the records of the whole lines in `text` to `records`. Returns how many bytes it has read: a last
  // line without a newline is left for the next call. Errors: kCorrupt with the number of the line.
  Result<size_t> Read(std::string_view text, std::vector<rendezvous::StepRecord>* records);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads metrics.jsonl of a finished, failed or running run. A torn last line is ignored. Errors: kNotFound
// when the file does not exist, kCorrupt with the number of the line.
Result<std::vector<rendezvous::StepRecord>> ReadSteps(const std::string& path);

}  // namespace ringmaster::cli
