// SPDX-License-Identifier: Apache-2.0

// TFRecord framing and the few fields of TensorFlow's Event message that scalars need. They are encoded here
// instead of with protobuf: six fields do not justify its compiler in the build.
//
//   record:  length (u64) | masked crc32c of the length (u32) | data | masked crc32c of the data (u32)
//   Event:   wall_time=1 double, step=2 int64, file_version=3 string, summary=5, session_log=7
//   Summary: value=1 {tag=1 string, simple_value=2 float}
//
// Little endian. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ringmaster::cli {

// CRC-32C (Castagnoli).
uint32_t Crc32c(std::string_view bytes);

std::string TfRecord(std::string_view data);

// Takes the first record off `bytes`. Returns nullopt at the end and at a torn or damaged record.
std::optional<std::string_view> TakeTfRecord(std::string_view& bytes);

struct Scalar {
  std::string tag;
  float value = 0;
};

// The first event of a file.
std::string VersionEvent(double wall_time);
// Makes a reader forget what it has read of steps from `step` on.
std::string RestartEvent(double wall_time, int64_t step);
std::string ScalarsEvent(double wall_time, int64_t step, const std::vector<Scalar>& scalars);

struct EventHead {
  double wall_time = 0;
  int64_t step = 0;
};
// Returns the time and the step of an encoded event; nullopt if it is not one.
std::optional<EventHead> ReadEventHead(std::string_view event);

}  // namespace ringmaster::cli
