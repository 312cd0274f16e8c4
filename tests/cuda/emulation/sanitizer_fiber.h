// SPDX-License-Identifier: Apache-2.0

// Reports stack switches to the address and the thread sanitizer; a no-op without them. One per fiber.
#pragma once

#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstddef>

#include "base/sanitizers.h"

#if defined(RINGMASTER_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(RINGMASTER_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace ringmaster::cuda::emulation {

// Stacks for fibers. A fiber leaves its last frames without returning from them, so the address sanitizer
// still forbids their variables when the memory is mapped again for something else.
class FiberStacks {
 public:
  // The names are those that Boost calls.
  explicit FiberStacks(size_t bytes) : stacks_(bytes) {}
  boost::context::stack_context allocate() { return stacks_.allocate(); }
  void deallocate(boost::context::stack_context& stack) {
#if defined(RINGMASTER_ADDRESS_SANITIZER)
    ASAN_UNPOISON_MEMORY_REGION(static_cast<std::byte*>(stack.sp) - stack.size, stack.size);
#endif
    stacks_.deallocate(stack);
  }

 private:
  boost::context::protected_fixedsize_stack stacks_;
};

#if defined(RINGMASTER_ADDRESS_SANITIZER)

class SanitizerFiber {
 public:
  void SetStack(const void* bottom, size_t bytes) {
    bottom_ = bottom;
    bytes_ = bytes;
  }
  // Called on the scheduler's stack, before and after it resumes the fiber.
  void BeforeEntering() { __sanitizer_start_switch_fiber(&outside_, bottom_, bytes_); }
  void AfterLeaving() { __sanitizer_finish_switch_fiber(outside_, nullptr, nullptr); }
  // Called on the fiber's stack.
  void AfterEntering() { __sanitizer_finish_switch_fiber(inside_, &outside_bottom_, &outside_bytes_); }
  void BeforeLeaving() { __sanitizer_start_switch_fiber(&inside_, outside_bottom_, outside_bytes_); }

 private:
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
  const void* outside_bottom_ = nullptr;
  size_t outside_bytes_ = 0;
  void* outside_ = nullptr;
  void* inside_ = nullptr;
};

#elif defined(RINGMASTER_THREAD_SANITIZER)

class SanitizerFiber {
 public:
  SanitizerFiber() : fiber_(__tsan_create_fiber(0)) {}
  ~SanitizerFiber() { __tsan_destroy_fiber(fiber_); }
  SanitizerFiber(const SanitizerFiber&) = delete;
  SanitizerFiber& operator=(const SanitizerFiber&) = delete;
  void SetStack(const void*, size_t) {}
  void BeforeEntering() {
    outside_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber_, 0);
  }
  void AfterLeaving() {}
  void AfterEntering() {}
  void BeforeLeaving() { __tsan_switch_to_fiber(outside_, 0); }

 private:
  void* fiber_;
  void* outside_ = nullptr;
};

#else

class SanitizerFiber {
 public:
  void SetStack(const void*, size_t) {}
  void BeforeEntering() {}
  void AfterLeaving() {}
  void AfterEntering() {}
  void BeforeLeaving() {}
};

#endif

}  // namespace ringmaster::cuda::emulation
