// SPDX-License-Identifier: Apache-2.0

// RINGMASTER_ADDRESS_SANITIZER and RINGMASTER_THREAD_SANITIZER are defined in code that is compiled with that
// sanitizer. g++ and clang 14 tell it in different ways.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RINGMASTER_ADDRESS_SANITIZER
#elif __has_feature(thread_sanitizer)
#define RINGMASTER_THREAD_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define RINGMASTER_ADDRESS_SANITIZER
#elif defined(__SANITIZE_THREAD__)
#define RINGMASTER_THREAD_SANITIZER
#endif
