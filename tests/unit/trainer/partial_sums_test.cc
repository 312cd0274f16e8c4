// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/partial_sums.h"

#include <gtest/gtest.h>

namespace ringmaster::trainer {
namespace {

const std::vector<int32_t> kExponents = {3, 4};

// An attempt for [2, 4) of 6 micro-batches with 2 buckets: 2 is complete, and bucket 0 has 3.
PartialSums Interrupted() {
  PartialSums sums(6, 2);
  EXPECT_FALSE(sums.Begin(7, kExponents, 2, 4));
  EXPECT_TRUE(sums.Empty(0));
  sums.Add(2, 0);
  sums.Add(2, 1);
  sums.Complete(2, 1.5);
  sums.Add(3, 0);
  return sums;
}

TEST(PartialSums, ALargerShareKeepsWhatIsThere) {
  PartialSums sums = Interrupted();
  EXPECT_TRUE(sums.Begin(7, kExponents, 0, 6));
  EXPECT_TRUE(sums.IsComplete(2));
  EXPECT_EQ(sums.loss(2), 1.5);
  EXPECT_FALSE(sums.IsComplete(3));
  EXPECT_TRUE(sums.Contains(3, 0));
  EXPECT_FALSE(sums.Contains(3, 1));
  EXPECT_FALSE(sums.Empty(1));
}

void ExpectNothing(PartialSums& sums, uint64_t version, const std::vector<int32_t>& exponents, int first,
                   int end) {
  EXPECT_FALSE(sums.Begin(version, exponents, first, end));
  EXPECT_TRUE(sums.Empty(0));
  EXPECT_TRUE(sums.Empty(1));
  EXPECT_FALSE(sums.IsComplete(2));
  EXPECT_FALSE(sums.Contains(3, 0));
}

TEST(PartialSums, OtherParametersExponentsAndSharesKeepNothing) {
  PartialSums sums = Interrupted();
  ExpectNothing(sums, 8, kExponents, 0, 6);
  sums = Interrupted();
  ExpectNothing(sums, 7, {3, 5}, 0, 6);
  sums = Interrupted();
  ExpectNothing(sums, 7, kExponents, 3, 6);
  sums = Interrupted();
  ExpectNothing(sums, 7, kExponents, 0, 3);  // bucket 0 has a term of 3
}

TEST(PartialSums, AReducedBucketKeepsNothing) {
  PartialSums sums = Interrupted();
  sums.Reduce();
  EXPECT_FALSE(sums.Empty(0)) << "the attempt continues";
  ExpectNothing(sums, 7, kExponents, 0, 6);
}

TEST(PartialSums, ForgottenSumsKeepNothing) {
  PartialSums sums = Interrupted();
  sums.Forget();
  ExpectNothing(sums, 7, kExponents, 0, 6);
}

}  // namespace
}  // namespace ringmaster::trainer
