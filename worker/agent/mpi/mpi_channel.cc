// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/mpi_channel.h"

#include "base/check.h"

namespace ringmaster::agent {
namespace {

constexpr size_t kHeader = 5;

}  // namespace

void MpiChannel::Queue(Type type, std::string_view payload) {
  CHECK(payload.size() <= kMaxPayload, "{} bytes", payload.size());
  unsent_ += static_cast<char>(type);
  for (int shift = 24; shift >= 0; shift -= 8)
    unsent_ += static_cast<char>(payload.size() >> static_cast<unsigned>(shift) & 0xff);
  unsent_ += payload;
}

Status MpiChannel::Flush() {
  while (sent_ < unsent_.size()) {
    RM_ASSIGN(const size_t put, channel_->Send(unsent_.data() + sent_, unsent_.size() - sent_));
    if (put == 0) return Ok();
    sent_ += put;
  }
  unsent_.clear();
  sent_ = 0;
  return Ok();
}

Status MpiChannel::Receive() {
  char chunk[16 << 10];
  // One frame at most: who reads pauses when its own reader is slow.
  while (received_.size() < kHeader + kMaxPayload) {
    RM_ASSIGN(const size_t got, channel_->Receive(chunk, sizeof chunk));
    if (got == 0) return Ok();
    received_.append(chunk, got);
  }
  return Ok();
}

Result<std::optional<MpiChannel::Frame>> MpiChannel::Next() {
  if (received_.size() < kHeader) return std::optional<Frame>();
  size_t size = 0;
  for (size_t i = 1; i < kHeader; ++i) size = size << 8 | static_cast<unsigned char>(received_[i]);
  const char type = received_[0];
  if (size > kMaxPayload || std::string_view("cisoex").find(type) == std::string_view::npos)
    return Error{Code::kCorrupt, "not a frame of rsh"};
  if (received_.size() < kHeader + size) return std::optional<Frame>();
  Frame frame{static_cast<Type>(type), received_.substr(kHeader, size)};
  received_.erase(0, kHeader + size);
  return std::optional<Frame>(std::move(frame));
}

}  // namespace ringmaster::agent
