// SPDX-License-Identifier: Apache-2.0

// Exit codes of workers, the same in agents, trainers, programs of the library and the operator's default
// rules. They are part of the interface (docs/reference/exit-codes.md) and do not change between releases.
#pragma once

#include <cstdint>

namespace ringmaster {

inline constexpr int32_t kExitBadInput = 64;      // wrong input for all workers: no restart helps
inline constexpr int32_t kExitInternal = 70;      // an error of Ringmaster
inline constexpr int32_t kExitMemory = 71;        // too little memory
inline constexpr int32_t kExitDevice = 74;        // the device or the storage of the data fails
inline constexpr int32_t kExitStale = 75;         // of an obsolete attempt, or cut off: not the pod's fault
inline constexpr int32_t kExitRefused = 76;       // the worker does not fit the others
inline constexpr int32_t kExitCannotStart = 127;  // the program cannot be started; the code of a shell

}  // namespace ringmaster
