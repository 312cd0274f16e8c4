// A folder of its own for one test, removed with it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace ringmaster::cli {

class FolderForTest {
 public:
  FolderForTest() {
    std::string name = testing::TempDir() + "ringmaster-cli-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~FolderForTest() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  FolderForTest(const FolderForTest&) = delete;
  FolderForTest& operator=(const FolderForTest&) = delete;

  std::string path(const std::string& name = "") const { return name.empty() ? path_ : path_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  std::string Read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path(name), std::ios::binary).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

}  // namespace ringmaster::cli
