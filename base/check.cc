// SPDX-License-Identifier: Apache-2.0

#include "base/check.h"

#include <cstdio>
#include <cstdlib>

#include "base/result.h"

namespace ringmaster {

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed%s%s\n", file, line, condition, message.empty() ? "" : ": ",
               message.c_str());
  std::fflush(stderr);
  std::abort();
}

const char* CodeName(Code code) {
  switch (code) {
    case Code::kInvalid:
      return "Invalid";
    case Code::kNotFound:
      return "NotFound";
    case Code::kAlreadyExists:
      return "AlreadyExists";
    case Code::kConflict:
      return "Conflict";
    case Code::kGone:
      return "Gone";
    case Code::kForbidden:
      return "Forbidden";
    case Code::kUnavailable:
      return "Unavailable";
    case Code::kAmbiguous:
      return "Ambiguous";
    case Code::kDeadlineExceeded:
      return "DeadlineExceeded";
    case Code::kCancelled:
      return "Cancelled";
    case Code::kCorrupt:
      return "Corrupt";
    case Code::kExhausted:
      return "Exhausted";
    case Code::kInternal:
      return "Internal";
  }
  return "Unknown";
}

}  // namespace ringmaster
