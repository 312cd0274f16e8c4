// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <algorithm>

#include "worker/compute/cuda/runtime/device_properties.h"
#include "worker/compute/cuda/runtime/memory.h"

namespace ringmaster::cuda {
namespace {

std::string Size(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1 << 30) return fmt::format("{:.2f} GiB", value / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  return fmt::format("{:.1f} KiB", value / (1 << 10));
}

}  // namespace

void MemoryPlan::Count(const std::string& part, int64_t bytes) {
  bytes_ += bytes;
  const auto known =
      std::find_if(parts_.begin(), parts_.end(), [&](const Part& each) { return each.name == part; });
  if (known == parts_.end())
    parts_.push_back({part, bytes});
  else
    known->bytes += bytes;
}

void MemoryPlan::Add(const std::string& part, int64_t bytes, std::function<Status()> allocate) {
  Count(part, bytes);
  allocate_.push_back(std::move(allocate));
}

void MemoryPlan::AddAllocated(int64_t bytes, const std::string& part) {
  if (bytes == 0) return;
  Count(part, bytes);
  already_allocated_ += bytes;
}

std::string MemoryPlan::Arithmetic() const {
  std::string sum;
  for (const Part& part : parts_)
    sum += fmt::format("{}{} {}", sum.empty() ? "" : " + ", part.name, Size(part.bytes));
  return sum;
}

Status MemoryPlan::Allocate() {
  RM_ASSIGN(DeviceMemory memory, GetDeviceMemory());
  memory.free_bytes += already_allocated_;  // as before those allocations
  const auto refused = [&] {
    return Error{
        Code::kExhausted,
        fmt::format("the GPU's memory is too small: {} are needed ({}), {} of {} are free; {}", Size(bytes_),
                    Arithmetic(), Size(memory.free_bytes), Size(memory.total_bytes), remedy_)};
  };
  if (bytes_ > memory.free_bytes) return refused();
  for (const auto& allocate : allocate_)
    if (const Status done = allocate(); !done.ok())
      return done.error().code == Code::kExhausted ? refused() : done.error();
  return Ok();
}

}  // namespace ringmaster::cuda
