// SPDX-License-Identifier: Apache-2.0

// Mutexes that clang's thread-safety analysis understands. The standard library's are not annotated, so
// product code uses these; tests may use either.
//
//   Mutex mutex_;
//   std::deque<Job> jobs_ RM_GUARDED_BY(mutex_);
//   CondVar changed_;
//
//   MutexLock lock(mutex_);
//   while (jobs_.empty()) changed_.Wait(lock);
//
// Wait takes no predicate: the analysis does not know that a lambda runs with the mutex held.
#pragma once

#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#include "base/thread_annotations.h"
#include "base/time.h"

namespace ringmaster {

class RM_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() RM_ACQUIRE() { mutex_.lock(); }
  bool TryLock() RM_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void Unlock() RM_RELEASE() { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a Mutex for the duration of a scope. Unlock and Lock let it go in between.
class RM_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) RM_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() RM_RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() RM_RELEASE() { lock_.unlock(); }
  void Lock() RM_ACQUIRE() { lock_.lock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

// REQUIRES: the lock passed to Wait and WaitUntil holds the mutex that guards the condition. Both may return
// without a notification: call them in a loop that checks the condition.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(MutexLock& lock) { condition_.wait(lock.lock_); }
  // Returns false when `deadline` has passed. kNever waits without a limit.
  bool WaitUntil(MutexLock& lock, Time deadline) {
    if (deadline == kNever) {
      condition_.wait(lock.lock_);
      return true;
    }
    return condition_.wait_until(lock.lock_, deadline) == std::cv_status::no_timeout;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

// Many readers or one writer.
class RM_CAPABILITY("shared_mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void Lock() RM_ACQUIRE() { mutex_.lock(); }
  void Unlock() RM_RELEASE() { mutex_.unlock(); }
  void LockShared() RM_ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void UnlockShared() RM_RELEASE_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

class RM_SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) RM_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~WriterLock() RM_RELEASE() { mutex_.Unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex& mutex_;
};

class RM_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) RM_ACQUIRE_SHARED(mutex) : mutex_(mutex) { mutex_.LockShared(); }
  ~ReaderLock() RM_RELEASE_GENERIC() { mutex_.UnlockShared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

}  // namespace ringmaster
