// A folder that goes away with the test, and waiting for a condition with a limit.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "base/time.h"

namespace ringmaster::local {

class Scratch {
 public:
  Scratch() {
    std::string pattern = testing::TempDir() + "operator-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline bool Await(const std::function<bool()>& condition) {
  const Time limit = Now() + seconds(60);
  while (!condition()) {
    if (Now() >= limit) return false;
    ::poll(nullptr, 0, 1);  // look again soon: files and foreign processes notify nobody
  }
  return true;
}

inline std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace ringmaster::local
