// SPDX-License-Identifier: Apache-2.0

// The errors when the attention library is not available; and the real library, which initialises only on a
// GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "worker/compute/cuda/attention_library.h"

namespace ringmaster::cuda {
namespace {

using testing::HasSubstr;

std::string WhyNot(const std::string& path) {
  EXPECT_EQ(::setenv("RINGMASTER_CUDNN_PLUGIN", path.c_str(), 1), 0);
  const auto library = LoadAttentionLibrary();
  if (library.ok()) return "";
  EXPECT_EQ(library.error().code, Code::kUnavailable);
  return library.error().message;
}

TEST(LoadAttentionLibrary, NamesWhatIsMissing) {
  EXPECT_THAT(WhyNot("/nowhere/libringmaster_cudnn.so"),
              HasSubstr("/nowhere/libringmaster_cudnn.so does not exist"));
  const std::string path = testing::TempDir() + "no-library.so";
  std::ofstream(path) << "not a library";
  EXPECT_THAT(WhyNot(path), HasSubstr("cannot be loaded"));
  EXPECT_THAT(WhyNot("libc.so.6"), HasSubstr("does not exist"));
  EXPECT_THAT(WhyNot(""), HasSubstr("libringmaster_cudnn.so")) << "next to the plugin";
}

TEST(LoadAttentionLibrary, RejectsAnotherLibrary) {
  EXPECT_THAT(WhyNot(RINGMASTER_ANOTHER_LIBRARY), HasSubstr("is not a Ringmaster plugin"));
}

#ifdef RINGMASTER_CUDNN_PLUGIN_BUILT
TEST(LoadAttentionLibrary, CudnnItselfNeedsAGpu) {
  const std::string why = WhyNot(RINGMASTER_CUDNN_PLUGIN_BUILT);
  EXPECT_TRUE(why.empty() || why.find("cuDNN-9.") == 0) << why;
  EXPECT_TRUE(why.empty() || why.find("does not initialise") != std::string::npos) << why;
}
#endif

}  // namespace
}  // namespace ringmaster::cuda
