// SPDX-License-Identifier: Apache-2.0

// Every way in which there is no GPU to compute on: a reason in words, and the CPU unless cuda was asked for.
#include "worker/compute/device/load_plugin.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "worker/compute/device/open_device.h"

namespace ringmaster::device {
namespace {

class Load : public testing::Test {
 protected:
  ~Load() override {
    ::unsetenv("RINGMASTER_DEVICE_PLUGIN");
    std::filesystem::remove(text_);
  }
  void Use(const std::string& path) { ::setenv("RINGMASTER_DEVICE_PLUGIN", path.c_str(), 1); }
  void ExpectWithout(const std::string& why) {
    const auto found = FindPlugin();
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, Code::kUnavailable);
    EXPECT_NE(found.error().message.find(why), std::string::npos) << found.error().message;
    EXPECT_EQ(Describe(), "cpu (no GPU: " + found.error().message + ")");
    EXPECT_EQ(Open({"auto", 1}).value()->Kind(), "cpu");
    EXPECT_EQ(Open({"cpu", 1}).value()->Kind(), "cpu");
    const auto asked = Open({"cuda", 1});
    ASSERT_FALSE(asked.ok());
    EXPECT_EQ(asked.error().code, Code::kUnavailable);
    EXPECT_NE(asked.error().message.find(why), std::string::npos);
    EXPECT_NE(asked.error().message.find("set it to auto or cpu"), std::string::npos);
  }
  const std::string text_ = testing::TempDir() + "no_library.so";
};

TEST_F(Load, BesideThisProgramUnlessTold) {
  EXPECT_EQ(std::filesystem::path(PluginPath()).parent_path(),
            std::filesystem::read_symlink("/proc/self/exe").parent_path());
  Use("/elsewhere/x.so");
  EXPECT_EQ(PluginPath(), "/elsewhere/x.so");
}

TEST_F(Load, NotThere) {
  Use("/nowhere/at/all.so");
  ExpectWithout("/nowhere/at/all.so is not there");
}

// Who may not take a GPU does not ask the driver for any.
TEST_F(Load, WhetherAGpuMayBeTaken) {
  std::ofstream(text_) << "whatever it is";
  Use(text_);
  EXPECT_TRUE(MayTakeGpu("auto"));
  EXPECT_TRUE(MayTakeGpu("cuda"));
  EXPECT_FALSE(MayTakeGpu("cpu"));
  Use("/nowhere/at/all.so");
  EXPECT_FALSE(MayTakeGpu("auto"));
}

TEST_F(Load, NoLibrary) {
  std::ofstream(text_) << "words";
  Use(text_);
  ExpectWithout("cannot be loaded");
}

TEST_F(Load, NoLibraryOfOurs) {
  for (const std::string folder :
       {"/lib/x86_64-linux-gnu/", "/lib/aarch64-linux-gnu/", "/lib64/", "/usr/lib/"}) {
    if (!std::filesystem::exists(folder + "libm.so.6")) continue;
    Use(folder + "libm.so.6");
    ExpectWithout("is no library of Ringmaster's");
    return;
  }
  GTEST_SKIP() << "where is libm?";
}

TEST_F(Load, AnotherBuild) {
  Use(STALE_PLUGIN);
  ExpectWithout("is of another build than this program");
}

}  // namespace
}  // namespace ringmaster::device
