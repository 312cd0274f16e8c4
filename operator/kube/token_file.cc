// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/token_file.h"

#include <sys/stat.h>

#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/mutex.h"

namespace ringmaster::kube {
namespace {

constexpr size_t kMaxTokenBytes = 1 << 20;

class StaticToken final : public TokenSource {
 public:
  explicit StaticToken(std::string token) : token_(std::move(token)) {}
  Result<std::string> Token() override { return token_; }

 private:
  const std::string token_;
};

// Identifies a file's content without reading it.
struct FileVersion {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t seconds = 0;
  int64_t nanoseconds = 0;
  bool operator==(const FileVersion&) const = default;
};

FileVersion VersionOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

class TokenFile final : public TokenSource {
 public:
  TokenFile(std::string path, Duration max_age) : path_(std::move(path)), max_age_(max_age) {}

  Result<std::string> Token() override {
    MutexLock lock(mutex_);
    const FileVersion version = VersionOf(path_);
    const Time now = Now();
    if (!token_.empty() && version == version_ && now - read_at_ < max_age_) return token_;
    Result<std::string> text = ReadFile(path_, kMaxTokenBytes);
    std::string fresh = text.ok() ? *text : std::string();
    while (!fresh.empty() && (fresh.back() == '\n' || fresh.back() == '\r' || fresh.back() == ' '))
      fresh.pop_back();
    if (!fresh.empty() && fresh.find_first_of("\r\n") == std::string::npos) {
      token_ = std::move(fresh);
      version_ = version;
      read_at_ = now;
      return token_;
    }
    const std::string why = !text.ok()      ? text.error().message
                            : fresh.empty() ? "token file " + path_ + " is empty"
                                            : "token file " + path_ + " holds more than one line";
    if (token_.empty()) return Error{text.ok() ? Code::kInvalid : text.error().code, why};
    read_at_ = now;  // so that not every request tries again
    version_ = version;
    log::Warn("token_file={} error={}: keeping the last token", path_, why);
    return token_;
  }

  void Expire() override {
    MutexLock lock(mutex_);
    version_ = {};
  }

 private:
  const std::string path_;
  const Duration max_age_;
  Mutex mutex_;
  std::string token_ RM_GUARDED_BY(mutex_);
  FileVersion version_ RM_GUARDED_BY(mutex_);
  Time read_at_ RM_GUARDED_BY(mutex_){};
};

}  // namespace

std::shared_ptr<TokenSource> MakeStaticToken(std::string token) {
  return std::make_shared<StaticToken>(std::move(token));
}

std::shared_ptr<TokenSource> MakeTokenFile(std::string path, Duration max_age) {
  return std::make_shared<TokenFile>(std::move(path), max_age);
}

}  // namespace ringmaster::kube
