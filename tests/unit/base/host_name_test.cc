// SPDX-License-Identifier: Apache-2.0

#include "base/host_name.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>

namespace ringmaster {
namespace {

TEST(HostNameTest, IsThatOfTheKernel) {
  utsname kernel;
  ASSERT_EQ(::uname(&kernel), 0);
  EXPECT_EQ(HostName(), kernel.nodename);
}

}  // namespace
}  // namespace ringmaster
