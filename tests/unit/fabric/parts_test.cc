// SPDX-License-Identifier: Apache-2.0

// The parts without I/O: arithmetic, addresses, and the traffic with one peer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "tests/temp_folder.h"
#include "worker/fabric/address.h"
#include "worker/fabric/channel.h"
#include "worker/fabric/combine.h"
#include "worker/fabric/fabric.h"
#include "worker/fabric/shm/available_memory.h"
#include "worker/fabric/stall.h"

namespace ringmaster::fabric {
namespace {

template <class T>
T Plain(ReduceOp op, T a, T b) {
  if (op == ReduceOp::kMax) return a < b ? b : a;
  if constexpr (std::is_same_v<T, int32_t>) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  } else {
    return a + b;
  }
}

template <class T>
void CompareWithPlainLoop(Element element) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    for (size_t sources = 1; sources <= 9; ++sources) {
      for (const size_t count : {0, 1, 7, 63, 1024, 1025, 5000}) {
        std::vector<std::vector<T>> values(sources, std::vector<T>(count));
        for (size_t s = 0; s < sources; ++s)
          for (size_t i = 0; i < count; ++i)
            values[s][i] = static_cast<T>(static_cast<int32_t>(KeyedRandom(s, i)) /
                                          (element == Element::kFloat ? 3.7 : 1));
        std::vector<T> want = values[0];
        for (size_t s = 1; s < sources; ++s)
          for (size_t i = 0; i < count; ++i) want[i] = Plain(op, want[i], values[s][i]);
        // The target is a source in the middle, as for a rank's own share.
        std::vector<const std::byte*> pointers;
        for (const auto& value : values) pointers.push_back(reinterpret_cast<const std::byte*>(value.data()));
        std::vector<T>& target = values[sources / 2];
        Combiner{element, op}.Combine(reinterpret_cast<std::byte*>(target.data()), pointers, count);
        ASSERT_EQ(target, want) << sources << " sources, " << count << " elements";
      }
    }
  }
}

TEST(Combine, EqualsAPlainLoopInSourceOrder) {
  CompareWithPlainLoop<int32_t>(Element::kInt32);
  CompareWithPlainLoop<float>(Element::kFloat);
}

TEST(Address, RoundTripAndRejections) {
  MemberAddress address;
  address.uuid = NewUuid();
  address.host_id = "somewhere";
  address.pid = 17;
  address.segments = {{3, 4096}, {5, 1 << 20}};
  address.ucx = std::string("\0\xff\n", 3);
  const std::string text = EncodeAddress(address);
  EXPECT_EQ(std::count_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }), 0);
  const auto back = DecodeAddress(text);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, address);
  EXPECT_NE(NewUuid(), NewUuid());
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_FALSE(DecodeAddress(text.substr(0, length)).ok());
  for (const char* bad :
       {"[]", "{}", R"({"uuid":"x","host":"h","pid":1,"segments":[],"ucx":""})",
        R"({"uuid":"0123456789abcdef0123456789abcdef","host":"h","pid":0,"segments":[],"ucx":""})",
        R"({"uuid":"0123456789abcdef0123456789abcdef","host":"h","pid":1,"segments":[[-1,2]],"ucx":""})"})
    EXPECT_FALSE(DecodeAddress(bad).ok()) << bad;
}

// A folder that accompanies the test as the root of the file system.
class AvailableMemoryTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) { folder_.Write(path, text); }
  void WriteGroup(const std::string& path, const std::string& limit, const std::string& usage) {
    Write(path + "/memory.max", limit + "\n");
    Write(path + "/memory.current", usage + "\n");
  }
  std::pair<uint64_t, std::string> Read() {
    const auto read = shm::ReadAvailableMemory(folder_.path());
    if (!read) return {0, "nothing"};
    const size_t root = read->limit.rfind(folder_.path(), 0) == 0 ? folder_.path().size() : 0;
    return {read->bytes, read->limit.substr(root)};
  }
  TempFolder folder_;
};

TEST_F(AvailableMemoryTest, WithoutAGroupTheMachineIsTheLimit) {
  EXPECT_EQ(Read(), std::pair(uint64_t{0}, std::string("nothing")));
  Write("/proc/meminfo", "MemTotal:       16384 kB\nMemFree:         1 kB\nMemAvailable:    8192 kB\n");
  EXPECT_EQ(Read(), std::pair(uint64_t{8} << 20, std::string("MemAvailable")));
  Write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(Read(), std::pair(uint64_t{8} << 20, std::string("MemAvailable")));
  WriteGroup("/sys/fs/cgroup", "max", "4096");
  EXPECT_EQ(Read(), std::pair(uint64_t{8} << 20, std::string("MemAvailable")));
}

TEST_F(AvailableMemoryTest, TheTightestGroupAboveTheProcessIsTheLimit) {
  Write("/proc/meminfo", "MemAvailable:    8192 kB\n");
  Write("/proc/self/cgroup", "0::/pods/pod7/main\n");
  WriteGroup("/sys/fs/cgroup/pods", "7000000", "1000000");
  WriteGroup("/sys/fs/cgroup/pods/pod7", "3000000", "1000000");
  WriteGroup("/sys/fs/cgroup/pods/pod7/main", "max", "900000");
  EXPECT_EQ(Read(), std::pair(uint64_t{2000000}, std::string("/sys/fs/cgroup/pods/pod7/memory.max")));
  // Files in the page cache can be dropped.
  Write("/sys/fs/cgroup/pods/pod7/memory.stat",
        "anon 400000\nfile 600000\ninactive_file 500000\nactive_file 100000\n");
  EXPECT_EQ(Read().first, 2600000u);
  // More is in use than allowed, after the limit was lowered.
  WriteGroup("/sys/fs/cgroup/pods/pod7/main", "800000", "900000");
  EXPECT_EQ(Read(), std::pair(uint64_t{0}, std::string("/sys/fs/cgroup/pods/pod7/main/memory.max")));
}

TEST_F(AvailableMemoryTest, AContainerSeesItsGroupAtTheTop) {
  Write("/proc/meminfo", "MemAvailable:    8192 kB\n");
  Write("/proc/self/cgroup", "0::/../pod7/main\n");
  WriteGroup("/sys/fs/cgroup", "3000000", "1000000");
  EXPECT_EQ(Read(), std::pair(uint64_t{2000000}, std::string("/sys/fs/cgroup/memory.max")));
}

TEST_F(AvailableMemoryTest, Version1HasOtherNames) {
  Write("/proc/meminfo", "MemAvailable:    8192 kB\n");
  Write("/proc/self/cgroup", "12:cpu,cpuacct:/a\n9:memory:/docker/77\n1:name=systemd:/b\n0::/\n");
  Write("/sys/fs/cgroup/memory/docker/77/memory.limit_in_bytes", "3000000\n");
  Write("/sys/fs/cgroup/memory/docker/77/memory.usage_in_bytes", "1000000\n");
  Write("/sys/fs/cgroup/memory/docker/77/memory.stat",
        "cache 9\ntotal_inactive_file 1000\ntotal_active_file 10\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5000000\n");
  EXPECT_EQ(Read(), std::pair(uint64_t{2001010},
                              std::string("/sys/fs/cgroup/memory/docker/77/memory.limit_in_bytes")));
}

// Time passes in ticks of 100 ms. Each member that waits announces its wait every 500 ms.
class StallTest : public ::testing::Test {
 protected:
  // Returns whether rank 0 of three stalls within `span`, while the ranks in `announcing` wait.
  bool StallsWithin(Duration span, const std::vector<int>& announcing) {
    for (Duration passed{}; passed < span; passed += milliseconds(100)) {
      now_ += milliseconds(100);
      if (passed % milliseconds(500) == Duration::zero())
        for (const int q : announcing) stall_.Heard(q, waits_[static_cast<size_t>(q)], now_);
      if (stall_.Stalled(now_, progress_)) return true;
    }
    return false;
  }
  StallDetector stall_{0, 3, seconds(6)};
  Time now_{};
  Time progress_{};
  std::vector<uint64_t> waits_ = {0, 7, 9};
};

TEST_F(StallTest, APeerThatDoesNotWaitMayTakeAsLongAsItLikes) {
  stall_.Begin(now_);
  EXPECT_FALSE(StallsWithin(std::chrono::hours(1), {}));
  EXPECT_FALSE(StallsWithin(std::chrono::hours(1), {1}));
  EXPECT_FALSE(StallsWithin(seconds(5), {1, 2}));
}

TEST_F(StallTest, ItIsAStallWhenAllWait) {
  stall_.Begin(now_);
  EXPECT_FALSE(StallsWithin(seconds(100), {2}));
  EXPECT_FALSE(StallsWithin(seconds(6), {1, 2}));
  EXPECT_TRUE(StallsWithin(seconds(1), {1, 2}));
}

TEST_F(StallTest, DataOrTheEndOfAnyWaitIsProgress) {
  stall_.Begin(now_);
  for (int i = 0; i < 20; ++i) {
    ASSERT_FALSE(StallsWithin(seconds(5), {1, 2}));
    if (i % 3 == 0) progress_ = now_;
    if (i % 3 == 1) ++waits_[2];
    if (i % 3 == 2) stall_.Begin(now_);
  }
  EXPECT_TRUE(StallsWithin(seconds(7), {1, 2}));
}

// A peer that leaves its wait sends no more announcements.
TEST_F(StallTest, AnAnnouncementIsForgotten) {
  stall_.Begin(now_);
  for (int i = 0; i < 20; ++i) {
    ASSERT_FALSE(StallsWithin(seconds(4), {1, 2}));
    ASSERT_FALSE(StallsWithin(seconds(2), {1}));
  }
}

TEST_F(StallTest, AWaitIsAnnouncedOncePerPeriod) {
  stall_.Begin(now_);
  int announcements = 0;
  for (int i = 0; i < 100; ++i) {
    now_ += milliseconds(100);
    if (stall_.AnnouncementDue(now_)) ++announcements;
  }
  EXPECT_EQ(announcements, 20);
}

std::vector<std::byte> Bytes(size_t count, int value) {
  return std::vector<std::byte>(count, std::byte(value));
}

TEST(Channel, DeliversInOrderOfSequence) {
  std::vector<uint64_t> order(20);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  SplitMix64 random(11);
  for (int repetition = 0; repetition < 50; ++repetition) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
    Channel channel;
    std::vector<std::byte> data(order.size() * 8);
    size_t posted = 0;
    const auto post = [&] {
      const auto part = std::span(data).subspan(posted * 8, 8);
      ASSERT_TRUE(
          channel.Post({{1}, static_cast<uint32_t>(posted)}, {part, PostedReceive::Action::kCopy, {}}).ok());
      ++posted;
    };
    for (const uint64_t sequence : order) {
      if (random.Chance(0.5) && posted < order.size()) post();
      ASSERT_TRUE(channel
                      .OnMessage(sequence, {{1}, static_cast<uint32_t>(sequence)},
                                 Bytes(8, static_cast<int>(sequence)))
                      .ok());
    }
    while (posted < order.size()) post();
    EXPECT_EQ(channel.delivered(), order.size());
    for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(data[i * 8], std::byte(i));
  }
}

TEST(Channel, StopsAtTheWindowUntilCreditArrives) {
  Channel sender;
  const auto data = Bytes(4, 1);
  for (uint64_t i = 0; i < 2 * Channel::kWindow; ++i) sender.Queue({}, data);
  uint64_t sent = 0;
  while (sender.Next()) ++sent;
  EXPECT_EQ(sent, Channel::kWindow);
  EXPECT_FALSE(sender.drained());
  sender.OnCredit(5);
  while (sender.Next()) ++sent;
  EXPECT_EQ(sent, Channel::kWindow + 5);
  sender.OnCredit(1000);  // more than was sent: ignored
  EXPECT_FALSE(sender.Next());
}

TEST(Channel, StopsWhenTheWindowIsFullOfBytes) {
  Channel sender;
  const auto data = Bytes(Channel::kWindowBytes / 4, 1);
  for (int i = 0; i < 12; ++i) sender.Queue({}, data);
  const auto send = [&] {
    int sent = 0;
    while (sender.Next()) ++sent;
    return sent;
  };
  EXPECT_EQ(send(), 4);
  sender.OnCredit(3);
  EXPECT_EQ(send(), 3);
  sender.OnCredit(2);  // older than the last credit
  EXPECT_EQ(send(), 0);
  sender.OnCredit(7);
  EXPECT_EQ(send(), 4);
}

// The window that stops a sender is larger than the part after which the receiver sends credit; otherwise
// both would wait for ever.
TEST(Channel, CreditIsDueBeforeTheSenderMustStop) {
  for (const size_t bytes : {size_t{1}, size_t{64} << 10, size_t{191} << 10, size_t{4} << 20}) {
    Channel sender;
    Channel receiver;
    const auto data = Bytes(bytes, 1);
    std::vector<std::byte> destination(bytes);
    uint64_t delivered = 0;
    for (int i = 0; i < 100; ++i) {
      sender.Queue({}, data);
      ASSERT_TRUE(receiver.Post({}, {destination, PostedReceive::Action::kCopy, {}}).ok());
    }
    while (delivered < 100) {
      const auto next = sender.Next();
      ASSERT_TRUE(next) << bytes << " bytes: stuck after " << delivered;
      ASSERT_TRUE(receiver.OnMessage(next->sequence, next->tag, next->data).ok());
      ++delivered;
      if (!receiver.CreditDue()) continue;
      sender.OnCredit(receiver.TakeCredit());
      EXPECT_FALSE(receiver.CreditDue());
    }
  }
}

TEST(Channel, RejectsUnexpectedMessages) {
  std::vector<std::byte> data(8);
  const PostedReceive receive{data, PostedReceive::Action::kCopy, {}};
  const auto rejected = [&](uint64_t sequence, Tag tag, size_t bytes) {
    Channel channel;
    EXPECT_TRUE(channel.Post({{1}, 2}, receive).ok());
    return !channel.OnMessage(sequence, tag, Bytes(bytes, 1)).ok();
  };
  EXPECT_FALSE(rejected(0, {{1}, 2}, 8));
  EXPECT_TRUE(rejected(0, {{1}, 3}, 8));
  EXPECT_TRUE(rejected(0, {{2}, 2}, 8));
  EXPECT_TRUE(rejected(0, {{1}, 2}, 4));
  EXPECT_TRUE(rejected(Channel::kWindow, {{1}, 2}, 8));
}

TEST(Fabric, RejectsInvalidArguments) {
  FabricOptions options;
  options.transport = "carrier-pigeon";
  EXPECT_EQ(Fabric::Create(options).error().code, Code::kInvalid);
  options.transport = "shm";
  options.host_id = "here";
  const auto fabric = Fabric::Create(options);
  ASSERT_TRUE(fabric.ok()) << fabric.error().message;
  const auto huge = (*fabric)->Allocate(size_t{1} << 50, "too much");
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, Code::kExhausted);
  EXPECT_NE(huge.error().message.find("MiB requested"), std::string::npos) << huge.error().message;
  const auto memory = (*fabric)->Allocate(10000, "small");
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 4096, 0u);
  EXPECT_TRUE(std::all_of(memory->begin(), memory->end(), [](std::byte b) { return b == std::byte(0); }));

  // Transport shm with a member on another host.
  options.host_id = "there";
  const auto other = Fabric::Create(options);
  ASSERT_TRUE(other.ok());
  const auto rejected = (*fabric)->Connect({1, 0, {(*fabric)->Address(), (*other)->Address()}});
  ASSERT_FALSE(rejected.ok());
  EXPECT_EQ(rejected.error().code, Code::kInvalid);
  EXPECT_FALSE((*fabric)->Connect({1, 1, {(*fabric)->Address(), (*other)->Address()}}).ok());
  EXPECT_FALSE((*fabric)->Connect({1, 0, {"rubbish"}}).ok());
  // A world of one works, and generations must grow.
  {
    const auto alone = (*fabric)->Connect({2, 0, {(*fabric)->Address()}});
    ASSERT_TRUE(alone.ok()) << alone.error().message;
    EXPECT_TRUE((*alone)->Barrier().ok());
  }
  EXPECT_FALSE((*fabric)->Connect({2, 0, {(*fabric)->Address()}}).ok());
}

}  // namespace
}  // namespace ringmaster::fabric
