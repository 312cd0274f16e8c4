// SPDX-License-Identifier: Apache-2.0

// A UCX context: the settings of the library and the memory registered with it.
//
// Thread-safe, except Register.
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

// Memory that is registered with UCX for transfers. Peers that hold its key may read it. Move-only.
// REQUIRES: the memory and the Context outlive it.
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
  // `features`: UCP_FEATURE_*. `direct`: hardware or the kernel performs RMA gets without the peer's help, or
  // they fail. UCX supports that from 1.21 on (see CanDisableEmulation). Its emulation of gets ends this
  // process when a peer dies at the wrong moment.
  static Result<std::unique_ptr<Context>> Create(uint64_t features, bool direct = false);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  ucp_context_h get() const { return context_; }
  // Whether UCX can recognise memory of this type and transfer it. If not, UCX must never see such memory.
  bool Supports(ucs_memory_type_t type) const;
  Result<RegisteredMemory> Register(std::span<std::byte> memory, ucs_memory_type_t type) const;

 private:
  Context() = default;
  ucp_context_h context_ = nullptr;
};

// Returns the version of the loaded library: "1.13.1".
std::string LibraryVersion();
std::pair<unsigned, unsigned> LibraryMajorMinor();
inline bool LibraryIsAtLeast(unsigned major, unsigned minor) {
  return LibraryMajorMinor() >= std::pair(major, minor);
}

// Whether this UCX can disable the emulation of RMA gets.
inline bool CanDisableEmulation() { return LibraryIsAtLeast(1, 21); }

Error UcxError(const std::string& what, ucs_status_t status);

}  // namespace ringmaster::fabric::ucx
