// SPDX-License-Identifier: Apache-2.0

// Splits bytes that arrive in pieces of any size into lines, in bounded memory. Not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ringmaster::kube {

class LineSplitter {
 public:
  explicit LineSplitter(size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}

  // Calls `visit(line)` for each line that ends in these bytes, without the newline. `visit` returns false to
  // stop. Returns false if stopped, or if a line exceeds the limit (too_long()); REQUIRES: no call after
  // that.
  template <class Visit>
  bool Feed(std::string_view bytes, Visit visit) {
    while (true) {
      const size_t end = bytes.find('\n');
      const std::string_view piece = bytes.substr(0, end);
      if (partial_.size() + piece.size() > max_line_bytes_) {
        too_long_ = true;
        return false;
      }
      if (end == std::string_view::npos) {
        partial_.append(piece);
        return true;
      }
      bytes.remove_prefix(end + 1);
      if (partial_.empty()) {
        if (!piece.empty() && !visit(piece)) return false;
        continue;
      }
      partial_.append(piece);
      const bool go_on = visit(std::string_view(partial_));
      // Do not keep the memory of a large line until the stream ends.
      if (partial_.capacity() > kKeptBytes)
        std::string().swap(partial_);
      else
        partial_.clear();
      if (!go_on) return false;
    }
  }

  bool too_long() const { return too_long_; }

 private:
  static constexpr size_t kKeptBytes = 64 * 1024;

  const size_t max_line_bytes_;
  std::string partial_;
  bool too_long_ = false;
};

}  // namespace ringmaster::kube
