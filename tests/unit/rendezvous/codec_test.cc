// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace ringmaster::rendezvous {
namespace {

constexpr uint64_t kHuge = 0xfedcba9876543210ULL;
constexpr int64_t kFar = kMaxCount;

std::vector<Message> OneOfEach() {
  StepRecord record;
  record.step = kFar;
  record.loss = 0.1;
  record.learning_rate = 5e-324;
  record.gradient_norm = -0.0;
  record.samples = -1;
  record.generation = kHuge;
  record.workers = -1;
  record.seconds = 1e308;
  Done done;
  done.finished = true;
  done.loss = 1.0 / 3;
  done.validation_accuracy = 0.25;
  done.weights_hash = "00ff";
  done.saved = false;
  return {Hello{"default/job \"x\"", "pod\\", "a b", "s\u00fc\n", 7, 3, "node-1"},
          Join{"a.1", std::string(5000, 'x')},
          MemberStatus{kHuge, "a.1", true, kFar, true, kHuge, ~uint64_t{0}, -1, "/ckpt", true},
          Down{"a.1", "mutex", -9, ""},
          Leave{"drain"},
          Progress{{record, StepRecord{}},
                   9,
                   7,
                   "write x: disk full",
                   "validating",
                   "ucx:tcp",
                   ValidationResult{8, 2.5, 0.75},
                   "truncated",
                   120},
          Progress{},
          done,
          Done{},
          Fatal{64, "no such file"},
          Ping{},
          Ping{BusyTime{kHuge, kFar, 3, 0.1, 5e-324, -1}},
          Bye{},
          ProgramState{ProgramPhase::kEnded, 7, 1, 2, "10.0.0.1:4000", 3, "exit", "ValueError", 1500},
          ProgramState{.phase = ProgramPhase::kRunning,
                       .key = "k",
                       .ranks = {{4, 3, 1}, {1, 0, 2}},
                       .open_ranks = 2,
                       .version = 5,
                       .survivors = "pid 7 (cat), state D"},
          StartProgram{7, {{"agent", "pod-0", "10.0.0.1:4000"}}},
          StartProgram{7, {{"agent", "pod-0", "10.0.0.1:4000", "", "k"}}},
          StartProgram{7, {{"agent", "pod-0", "10.0.0.1:4000", "", "k", 3}}, 1, 4},
          StopProgram{7, 30000},
          CheckPeers{kHuge, CheckStep::kListen},
          CheckPeers{kHuge, CheckStep::kConnect, {{"agent", "pod-0", "10.0.0.1:4000"}}},
          PeersChecked{kHuge, CheckStep::kConnect, {{0, "Connection refused"}, {511, ""}}},
          PeersChecked{kHuge, CheckStep::kListen, {}, "listen on port 4000: Address already in use"},
          PeersChecked{1, CheckStep::kEnd},
          Welcome{"j"},
          Prepare{kHuge, Urgency::kBoundary, true},
          Prepare{1, Urgency::kAbort, false},
          NewGeneration{
              kHuge, {{"a.1", "p", "x"}, {"b.1", "q", "y"}}, {0, 1}, -1, true, kHuge, kHuge - 1, true, 1, 7},
          Evict{"a.1", "late"},
          Exit{-1, "failed"},
          Exit{0, "finished", true},
          Facts{"NVIDIA H200", "580.95", "mlx5_0:1", {"gpu 0: hot", ""}},
          Facts{},
          OperationFailed{kHuge, "a.1", "rank 3 is gone", true},
          OperationFailed{1, "a.1", "no transport", true, {0, 511}}};
}

Result<std::optional<Message>> Through(const std::string& frame) {
  Decoder decoder;
  decoder.Feed(frame);
  return decoder.Next();
}

TEST(Codec, EveryMessageSurvivesARoundTrip) {
  std::vector<bool> seen(std::variant_size_v<Message>);
  for (const Message& message : OneOfEach()) {
    seen[message.index()] = true;
    const auto back = Through(Encode(message));
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_TRUE(back.value().has_value());
    EXPECT_TRUE(*back.value() == message) << Encode(message).substr(4);
  }
  for (const bool one : seen) EXPECT_TRUE(one);
}

TEST(Codec, ARouteNamesTheSlotsOfTheNextFrame) {
  const std::string frame = Encode(Ping{});
  for (const std::vector<int32_t>& slots :
       {std::vector<int32_t>{0}, {7, 8}, {0, 1, 2, 3, 4, 5, 6, 7}, {999}}) {
    Decoder decoder;
    decoder.Feed(EncodeRoute(slots) + frame + frame);
    const auto first = decoder.NextFrame();
    ASSERT_TRUE(first.ok() && first->has_value());
    EXPECT_EQ(**first, frame);
    EXPECT_EQ(decoder.slots(), slots);
    ASSERT_TRUE(decoder.Next().ok());
    EXPECT_TRUE(decoder.slots().empty()) << "a route counts once";
  }
  using namespace std::string_literals;
  const std::string route = EncodeRoute({1});
  for (const std::string& bad :
       {"\x80\0\0\0"s, "\x80\0\0\x7e"s, "\xff\xff\xff\xff"s, "\x80\0\0\1\0"s, route + route}) {
    Decoder decoder;
    decoder.Feed(bad);
    EXPECT_FALSE(decoder.NextFrame().ok());
  }
}

TEST(Codec, AcceptsHelloWithoutSlotAndNode) {
  const std::string body = R"({"agent":"a","attempt":7,"job":"j","pod":"p","secret":"s","type":"hello"})";
  const auto size = static_cast<uint32_t>(body.size());
  std::string old;
  for (int shift = 24; shift >= 0; shift -= 8) old += static_cast<char>(size >> shift & 0xff);
  const auto back = Through(old + body);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(**back == Message(Hello{"j", "p", "a", "s", 7}));
}

TEST(Codec, AHelloOfEarlierBuildsChecksNoPeers) {
  Hello hello{"j", "p", "a", "s", 7};
  EXPECT_EQ(Encode(hello).find("checksPeers"), std::string::npos);
  hello.checks_peers = true;
  const auto back = Through(Encode(hello));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(**back == Message(hello));
}

TEST(Codec, TheAnswerToACheckIsBounded) {
  const PeersChecked most{
      1, CheckStep::kConnect,
      std::vector<UnreachablePeer>(kMaxUnreachablePeers, {0, std::string(kMaxNameBytes, 'x')})};
  EXPECT_TRUE(Through(Encode(most)).ok());
  EXPECT_LT(Encode(most).size(), kMaxAgentFrameBytes);
  PeersChecked more = most;
  more.unreachable.push_back({});
  EXPECT_FALSE(Through(Encode(more)).ok());
  const std::string long_name(kMaxNameBytes + 1, 'x');
  EXPECT_FALSE(
      DecodeBody(R"({"type":"peersChecked","number":1,"step":"connect","unreachable":[{"peer":0,"why":")" +
                 long_name + R"("}]})")
          .ok());
  EXPECT_FALSE(
      DecodeBody(R"({"type":"peersChecked","number":1,"step":"listen","failure":")" + long_name + R"("})")
          .ok());
}

// Otherwise the peer closes the connection, again on each new one, since what it refused is repeated.
TEST(Codec, NothingThatIsEncodedIsRefused) {
  std::string binary;
  for (int i = 0; i < 20000; ++i) binary += static_cast<char>(i % 256);
  const std::string texts[] = {std::string(kMaxTextBytes, '\xe9'), std::string(20000, '\xff'), binary,
                               std::string(kMaxTextBytes - 1, 'x') + "\u00e9", "\xf0\x9f\x98"};
  for (const std::string& text : texts) {
    const Message messages[] = {
        Fatal{64, text, "a.1", true},
        Down{"a.1", text, 1, text},
        OperationFailed{1, "a.1", text, false, {}},
        MemberStatus{1, "a.1", true, 1, true, 1, 1, 1, text},
        Facts{text, text, text, std::vector<std::string>(kMaxDeviceFaults + 1, text)},
        PeersChecked{1, CheckStep::kConnect, {{0, text}}, text},
        Hello{"j", "p", "a", "s", 0, 0, text, text},
        Exit{1, text},
        Evict{"a.1", text},
    };
    for (const Message& message : messages) {
      const auto back = Through(Encode(message));
      EXPECT_TRUE(back.ok()) << back.error().message;
    }
  }
}

TEST(Codec, TextIsCutBetweenCharacters) {
  const auto message_of = [](const std::string& text) {
    return std::get<Leave>(**Through(Encode(Leave{text}))).reason;
  };
  EXPECT_EQ(message_of("na\u00efve \u65e5\u672c \U0001F600"), "na\u00efve \u65e5\u672c \U0001F600");
  EXPECT_EQ(message_of("a\xe9z"), "a?z");
  EXPECT_EQ(message_of("\xc0\xaf \xed\xa0\x80 \xf5"), "?? ??? ?") << "overlong, a surrogate, beyond Unicode";
  const std::string almost(kMaxTextBytes - 1, 'x');
  EXPECT_EQ(message_of(almost + "\u00e9"), almost);
}

TEST(Codec, APingWithoutBusyTimeIsThatOfEarlierBuilds) {
  EXPECT_EQ(Encode(Ping{}).substr(4), R"({"type":"ping"})");
}

TEST(Codec, EveryDoubleKeepsItsBits) {
  SplitMix64 rng(1);
  std::vector<double> values = {0.0, -0.0, std::nan("7"), -std::nan("1"), HUGE_VAL, -HUGE_VAL, 5e-324};
  for (int i = 0; i < 3000; ++i) values.push_back(std::bit_cast<double>(rng.Next()));
  for (const double value : values) {
    Done done;
    done.loss = value;
    const auto back = Through(Encode(done));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(std::bit_cast<uint64_t>(std::get<Done>(**back).loss), std::bit_cast<uint64_t>(value));
  }
}

TEST(Codec, DecodesAnySplitOfTheStream) {
  std::string stream;
  for (const Message& message : OneOfEach()) stream += Encode(message);
  SplitMix64 rng(2);
  for (int round = 0; round < 50; ++round) {
    Decoder decoder;
    std::vector<Message> got;
    for (size_t at = 0; at < stream.size();) {
      const size_t n = std::min<size_t>(1 + rng.Below(round < 2 ? 1 : 400), stream.size() - at);
      decoder.Feed(std::string_view(stream).substr(at, n));
      at += n;
      for (;;) {
        const auto next = decoder.Next();
        ASSERT_TRUE(next.ok());
        if (!next.value()) break;
        got.push_back(*next.value());
      }
    }
    EXPECT_TRUE(got == OneOfEach()) << "seed 2 round " << round;
  }
}

TEST(Codec, ErrorsNameTheMember) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "JSON"},
      {"[]", "object"},
      {"{}", "type"},
      {R"({"type":7})", "type"},
      {R"({"type":"hi"})", "type"},
      {R"({"type":"join","member":"a"})", "join: address: missing"},
      {R"({"type":"join","member":1,"address":""})", "member"},
      {R"({"type":"prepare","generation":-1,"urgency":"abort","stop":false})", "generation"},
      {R"({"type":"prepare","generation":1.5,"urgency":"abort","stop":false})", "generation"},
      {R"({"type":"prepare","generation":18446744073709551616,"urgency":"abort","stop":false})",
       "generation"},
      {R"({"type":"prepare","generation":1,"urgency":"soon","stop":false})", "urgency"},
      {R"({"type":"checkPeers","number":1,"step":"dial"})", "step"},
      {R"({"type":"peersChecked","number":-1,"step":"end"})", "number"},
      {R"({"type":"peersChecked","number":1,"step":"connect","unreachable":[{"peer":0}]})",
       "unreachable[0].why: missing"},
      {R"({"type":"startProgram","generation":1,"members":[],"life":-1})", "life: out of range"},
      {R"({"type":"programState","phase":"ended","generation":1,"rank":0,"world":1,"address":"","exitCode":1,)"
       R"("evidence":"exit","message":"","endedMicros":0,"life":2147483647})",
       "life: out of range"},
      {R"({"type":"exit","code":2147483648,"reason":""})", "code"},
      {R"({"type":"exit","code":1e400,"reason":""})", "JSON"},
      {R"({"type":"exit","code":1,"code":2,"reason":""})", "duplicate"},
      {R"({"type":"newGeneration","generation":1,"members":[{"id":"a","pod":"p"}],"sources":[],"startStep":0,"stop":false})",
       "members[0].address: missing"},
      {R"({"type":"newGeneration","generation":1,"members":{},"sources":[],"startStep":0,"stop":false})",
       "members"},
      {R"({"type":"done","finished":true,"step":1,"loss":"0x3ff0000000000000","validationLoss":0,"weightsHash":"","optimizerHash":""})",
       "loss"},
  };
  for (const auto& [text, expected] : cases) {
    const auto decoded = DecodeBody(text);
    ASSERT_FALSE(decoded.ok()) << text;
    EXPECT_EQ(decoded.error().code, Code::kInvalid);
    EXPECT_NE(decoded.error().message.find(expected), std::string::npos) << decoded.error().message;
  }
}

TEST(Codec, IgnoresUnknownMembers) {
  const auto decoded = DecodeBody(R"({"type":"leave","reason":"x","since":{"a":[1]}})");
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(*decoded == Message(Leave{"x"}));
}

TEST(Codec, RefusesAnOversizedFrameByItsLength) {
  Decoder decoder;
  decoder.Feed(std::string("\x04\x00\x00\x01", 4));
  EXPECT_FALSE(decoder.Next().ok());
}

}  // namespace
}  // namespace ringmaster::rendezvous
