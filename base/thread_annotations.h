// SPDX-License-Identifier: Apache-2.0

// Clang's thread-safety annotations: which mutex guards a member, and which mutex a function needs. Clang
// checks them at compile time (`scripts/test locks`: -Wthread-safety -Werror); other compilers ignore them.
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#if defined(__clang__)
#define RM_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define RM_THREAD_ANNOTATION(x)
#endif

#define RM_CAPABILITY(name) RM_THREAD_ANNOTATION(capability(name))
#define RM_SCOPED_CAPABILITY RM_THREAD_ANNOTATION(scoped_lockable)
#define RM_GUARDED_BY(mutex) RM_THREAD_ANNOTATION(guarded_by(mutex))
#define RM_ACQUIRED_BEFORE(...) RM_THREAD_ANNOTATION(acquired_before(__VA_ARGS__))
#define RM_REQUIRES(...) RM_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define RM_ACQUIRE(...) RM_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RM_TRY_ACQUIRE(...) RM_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define RM_ACQUIRE_SHARED(...) RM_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define RM_RELEASE(...) RM_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define RM_RELEASE_SHARED(...) RM_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
#define RM_RELEASE_GENERIC(...) RM_THREAD_ANNOTATION(release_generic_capability(__VA_ARGS__))
// Turns the analysis off for one function. A comment next to each use says why it cannot follow the locking.
#define RM_NO_THREAD_SAFETY_ANALYSIS RM_THREAD_ANNOTATION(no_thread_safety_analysis)
