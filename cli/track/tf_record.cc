// SPDX-License-Identifier: Apache-2.0

#include "cli/track/tf_record.h"

#include <array>
#include <bit>
#include <cstring>

namespace ringmaster::cli {
namespace {

constexpr auto kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78U : crc >> 1;
    table[byte] = crc;
  }
  return table;
}();

// A CRC over data that contains its own CRC is weak, so TFRecord stores another number.
uint32_t Masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8U; }

template <class T>
void Append(std::string& bytes, T value) {
  static_assert(std::endian::native == std::endian::little);
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes.append(raw, sizeof value);
}

template <class T>
T Load(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendVarint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  bytes += static_cast<char>(value);
}
void AppendKey(std::string& bytes, uint32_t field, WireType type) { AppendVarint(bytes, field << 3 | type); }
void AppendBytes(std::string& bytes, uint32_t field, std::string_view value) {
  AppendKey(bytes, field, kBytes);
  AppendVarint(bytes, value.size());
  bytes += value;
}

std::optional<uint64_t> TakeVarint(std::string_view& bytes) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::string EventWith(double wall_time, int64_t step) {
  std::string event;
  AppendKey(event, 1, kFixed64);
  Append(event, wall_time);
  if (step != 0) {
    AppendKey(event, 2, kVarint);
    AppendVarint(event, static_cast<uint64_t>(step));
  }
  return event;
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) crc = kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::string TfRecord(std::string_view data) {
  std::string record;
  Append(record, static_cast<uint64_t>(data.size()));
  Append(record, Masked(Crc32c(record)));
  record += data;
  Append(record, Masked(Crc32c(data)));
  return record;
}

std::optional<std::string_view> TakeTfRecord(std::string_view& bytes) {
  constexpr size_t kHead = 12, kTail = 4;
  if (bytes.size() < kHead + kTail) return std::nullopt;
  const auto size = Load<uint64_t>(bytes);
  if (Load<uint32_t>(bytes.substr(8)) != Masked(Crc32c(bytes.substr(0, 8)))) return std::nullopt;
  if (size > bytes.size() - kHead - kTail) return std::nullopt;
  const std::string_view data = bytes.substr(kHead, size);
  if (Load<uint32_t>(bytes.substr(kHead + size)) != Masked(Crc32c(data))) return std::nullopt;
  bytes.remove_prefix(kHead + size + kTail);
  return data;
}

std::string VersionEvent(double wall_time) {
  std::string event = EventWith(wall_time, 0);
  AppendBytes(event, 3, "brain.Event:2");
  return event;
}

std::string RestartEvent(double wall_time, int64_t step) {
  std::string session;
  AppendKey(session, 1, kVarint);
  AppendVarint(session, 1);  // SessionLog.START
  std::string event = EventWith(wall_time, step);
  AppendBytes(event, 7, session);
  return event;
}

std::string ScalarsEvent(double wall_time, int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    AppendBytes(value, 1, scalar.tag);
    AppendKey(value, 2, kFixed32);
    Append(value, scalar.value);
    AppendBytes(summary, 1, value);
  }
  std::string event = EventWith(wall_time, step);
  AppendBytes(event, 5, summary);
  return event;
}

std::optional<EventHead> ReadEventHead(std::string_view event) {
  EventHead head;
  while (!event.empty()) {
    const auto key = TakeVarint(event);
    if (!key) return std::nullopt;
    size_t skip = 0;
    if ((*key & 7) == kVarint) {
      const auto value = TakeVarint(event);
      if (!value) return std::nullopt;
      if (*key >> 3 == 2) head.step = static_cast<int64_t>(*value);
    } else if ((*key & 7) == kFixed64) {
      skip = 8;
      if (event.size() < skip) return std::nullopt;
      if (*key >> 3 == 1) head.wall_time = Load<double>(event);
    } else if ((*key & 7) == kBytes) {
      const auto size = TakeVarint(event);
      if (!size) return std::nullopt;
      skip = *size;
    } else if ((*key & 7) == kFixed32) {
      skip = 4;
    } else {
      return std::nullopt;
    }
    if (skip > event.size()) return std::nullopt;
    event.remove_prefix(skip);
  }
  return head;
}

}  // namespace ringmaster::cli
