// SPDX-License-Identifier: Apache-2.0

// UCX as one part of this process uses it: the settings it runs with, and the memory it is told of.
//
// Any thread; what is made here is immutable, but for Register, which one thread at a time calls.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace ringmaster::fabric::ucx {

class Context;

// Memory that UCX has made ready for transfers; peers that are given its key may read it. Move-only; the
// memory outlives it, and it is gone before its Context.
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  RegisteredMemory(RegisteredMemory&& other) noexcept
      : context_(other.context_),
        handle_(std::exchange(other.handle_, nullptr)),
        memory_(other.memory_),
        key_(std::move(other.key_)) {}
  RegisteredMemory& operator=(RegisteredMemory&& other) = delete;
  ~RegisteredMemory();

  ucp_mem_h handle() const { return handle_; }
  std::span<std::byte> memory() const { return memory_; }
  const std::string& key() const { return key_; }

 private:
  friend class Context;
  const Context* context_ = nullptr;
  ucp_mem_h handle_ = nullptr;
  std::span<std::byte> memory_;
  std::string key_;
};

class Context {
 public:
  // `features`: UCP_FEATURE_*. `direct`: reads of a peer's memory are done by hardware or the kernel, without
  // the peer's help, or fail; where the library can be told so (1.21). Its emulation ends the process when a
  // peer dies at the wrong moment.
  static Result<std::unique_ptr<Context>> Create(uint64_t features, bool direct = false);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  ucp_context_h get() const { return context_; }
  // It can tell such memory from others and has a way to move it. Without that, never show it any.
  bool Supports(ucs_memory_type_t type) const;
  Result<RegisteredMemory> Register(std::span<std::byte> memory, ucs_memory_type_t type) const;

 private:
  Context() = default;
  ucp_context_h context_ = nullptr;
};

// "1.13.1", of the library that runs; and whether it is at least that.
std::string LibraryVersion();
bool LibraryIsAtLeast(unsigned major, unsigned minor);

// Whether it can do without emulation.
inline bool CanDisableEmulation() { return LibraryIsAtLeast(1, 21); }

Error UcxError(const std::string& what, ucs_status_t status);

}  // namespace ringmaster::fabric::ucx
