// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <latch>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "include/ringmaster_group.h"

namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The members of a group, which are threads of this process.
class Members {
 public:
  explicit Members(int world, const char* transport = "shm") : groups_(static_cast<size_t>(world)) {
    rm_group_options options{};
    options.size = sizeof options;
    options.transport = transport;
    for (rm_group*& group : groups_) {
      EXPECT_EQ(rm_group_open(&options, &group), RM_OK) << rm_group_error(group);
      addresses_.emplace_back(rm_group_address(group));
    }
  }
  ~Members() {
    for (rm_group* group : groups_) rm_group_close(group);
  }

  int world() const { return static_cast<int>(groups_.size()); }
  rm_group* operator[](int rank) const { return groups_[static_cast<size_t>(rank)]; }

  rm_status Connect(int rank, uint64_t generation) {
    std::vector<const char*> addresses;
    for (const std::string& address : addresses_) addresses.push_back(address.c_str());
    return rm_group_connect((*this)[rank], generation, rank, world(), addresses.data());
  }

  // Runs `body` in one thread per rank, after it has connected.
  void Run(const std::function<void(int rank, rm_group* group)>& body, uint64_t generation = 1) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world(); ++rank) {
      threads.emplace_back([&, rank] {
        ASSERT_EQ(Connect(rank, generation), RM_OK) << rm_group_error((*this)[rank]);
        body(rank, (*this)[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<rm_group*> groups_;
  std::vector<std::string> addresses_;
};

TEST(GroupApi, Reductions) {
  Members members(3);
  members.Run([](int rank, rm_group* group) {
    std::vector<float> floats(1000, static_cast<float>(rank + 1));
    EXPECT_EQ(rm_group_all_reduce(group, floats.data(), floats.size(), RM_FLOAT32, RM_SUM), RM_OK);
    EXPECT_THAT(floats, Each(6.0f));
    std::vector<int32_t> integers(7, rank - 5);
    EXPECT_EQ(rm_group_all_reduce(group, integers.data(), integers.size(), RM_INT32, RM_MAX), RM_OK);
    EXPECT_THAT(integers, Each(-3));
    std::vector<int32_t> shares(6);
    std::iota(shares.begin(), shares.end(), rank);
    EXPECT_EQ(rm_group_reduce_scatter(group, shares.data(), shares.size(), RM_INT32, RM_SUM), RM_OK);
    EXPECT_EQ(shares[static_cast<size_t>(2 * rank)], 3 * 2 * rank + 3);
    EXPECT_EQ(shares[static_cast<size_t>(2 * rank + 1)], 3 * (2 * rank + 1) + 3);
    float one = static_cast<float>(rank);
    EXPECT_EQ(rm_group_reduce(group, &one, 1, RM_FLOAT32, RM_SUM, 2), RM_OK);
    if (rank == 2) {
      EXPECT_EQ(one, 3.0f);
    }
    EXPECT_EQ(rm_group_all_reduce(group, nullptr, 0, RM_FLOAT32, RM_SUM), RM_OK);
  });
}

TEST(GroupApi, BytesTravel) {
  Members members(3);
  members.Run([](int rank, rm_group* group) {
    EXPECT_STREQ(rm_group_transport(group), "shm");
    EXPECT_EQ(rm_group_lost(group, 0), -1);
    std::array<uint8_t, 3> gathered{};
    gathered[static_cast<size_t>(rank)] = static_cast<uint8_t>(10 + rank);
    EXPECT_EQ(rm_group_all_gather(group, gathered.data(), 3), RM_OK);
    EXPECT_THAT(gathered, ElementsAre(10, 11, 12));
    uint8_t sent = static_cast<uint8_t>(rank);
    EXPECT_EQ(rm_group_broadcast(group, &sent, 1, 1), RM_OK);
    EXPECT_EQ(sent, 1);
    const std::array<uint8_t, 3> in = {static_cast<uint8_t>(rank * 10), static_cast<uint8_t>(rank * 10 + 1),
                                       static_cast<uint8_t>(rank * 10 + 2)};
    std::array<uint8_t, 3> out{};
    EXPECT_EQ(rm_group_all_to_all(group, in.data(), out.data(), 3), RM_OK);
    EXPECT_THAT(out, ElementsAre(rank, 10 + rank, 20 + rank));
    EXPECT_EQ(rm_group_barrier(group), RM_OK);
    if (rank == 0) {
      EXPECT_EQ(rm_group_send(group, in.data(), 3, 2), RM_OK);
    }
    if (rank == 2) {
      EXPECT_EQ(rm_group_receive(group, out.data(), 3, 0), RM_OK);
      EXPECT_THAT(out, ElementsAre(0, 1, 2));
    }
  });
}

TEST(GroupApi, NewGenerationsReplaceOldOnes) {
  Members members(2);
  for (uint64_t generation = 1; generation <= 3; ++generation) {
    members.Run(
        [](int, rm_group* group) {
          int32_t one = 1;
          EXPECT_EQ(rm_group_all_reduce(group, &one, 1, RM_INT32, RM_SUM), RM_OK);
          EXPECT_EQ(one, 2);
        },
        generation);
  }
  EXPECT_EQ(members.Connect(0, 3), RM_INVALID);
  EXPECT_THAT(rm_group_error(members[0]), HasSubstr("generation 3 is not larger"));
}

TEST(GroupApi, AbortEndsAnOperationOnAllMembers) {
  Members members(3);
  std::latch connected(3);  // a member that still connects would fail there
  members.Run([&](int rank, rm_group* group) {
    connected.arrive_and_wait();
    if (rank == 2) {
      rm_group_abort(group, 1);
      return;
    }
    EXPECT_EQ(rm_group_barrier(group), RM_FAILED);
    EXPECT_THAT(rm_group_error(group), HasSubstr("gave up generation 1"));
    EXPECT_EQ(rm_group_barrier(group), RM_FAILED) << "a generation that has ended stays so";
  });
  members.Run([](int, rm_group* group) { EXPECT_EQ(rm_group_barrier(group), RM_OK); }, 2);
}

TEST(GroupApi, AbortEndsAConnect) {
  Members members(2);
  std::thread waits([&] {
    EXPECT_EQ(members.Connect(0, 1), RM_FAILED);
    EXPECT_THAT(rm_group_error(members[0]), HasSubstr("aborted"));
  });
  rm_group_abort(members[0], 1);
  waits.join();
}

TEST(GroupApi, WrongArgumentsChangeNothing) {
  Members members(1);
  rm_group* const group = members[0];
  EXPECT_EQ(rm_group_barrier(group), RM_INVALID);
  EXPECT_THAT(rm_group_error(group), HasSubstr("rm_group_barrier: the group is not connected"));
  EXPECT_EQ(rm_group_connect(group, 1, 0, 1, nullptr), RM_INVALID);
  const std::string own = rm_group_address(group);
  const std::array<const char*, 1> addresses = {own.c_str()};
  EXPECT_EQ(rm_group_connect(group, 1, 1, 1, addresses.data()), RM_INVALID);
  ASSERT_EQ(members.Connect(0, 1), RM_OK);
  std::array<float, 3> data = {1, 2, 3};
  EXPECT_EQ(rm_group_all_reduce(group, data.data(), 3, 7, RM_SUM), RM_INVALID);
  EXPECT_EQ(rm_group_all_reduce(group, data.data(), 3, RM_FLOAT32, 7), RM_INVALID);
  EXPECT_EQ(rm_group_all_reduce(group, nullptr, 3, RM_FLOAT32, RM_SUM), RM_INVALID);
  EXPECT_EQ(rm_group_broadcast(group, data.data(), 4, 1), RM_INVALID);
  EXPECT_THAT(rm_group_error(group), HasSubstr("no rank 1 in a world of 1"));
  EXPECT_EQ(rm_group_send(group, data.data(), 4, 0), RM_INVALID);
  EXPECT_EQ(rm_group_all_reduce(group, data.data(), 3, RM_FLOAT32, RM_SUM), RM_OK);
  EXPECT_THAT(data, ElementsAre(1, 2, 3));
}

TEST(GroupApi, WithoutAGroup) {
  EXPECT_EQ(rm_group_open(nullptr, nullptr), RM_INVALID);
  EXPECT_EQ(rm_group_barrier(nullptr), RM_INVALID);
  rm_group_close(nullptr);
  rm_group_abort(nullptr, 1);
  rm_group_options options{};
  options.size = sizeof options;
  options.transport = "pigeon";
  rm_group* group = nullptr;
  EXPECT_EQ(rm_group_open(&options, &group), RM_INVALID);
  EXPECT_THAT(rm_group_error(group), HasSubstr("pigeon"));
  EXPECT_STREQ(rm_group_address(group), "");
  EXPECT_EQ(rm_group_barrier(group), RM_FAILED);
  rm_group_close(group);
}

}  // namespace
