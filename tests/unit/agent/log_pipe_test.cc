// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/log_pipe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace ringmaster::agent {
namespace {

struct Pipe {
  Fd read;
  Fd write;
};

Pipe MakePipe(int flags) {
  int ends[2];
  CHECK(::pipe2(ends, O_CLOEXEC | flags) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

std::string Drain(int fd) {
  std::string all;
  char chunk[8192];
  ssize_t got = 0;
  while ((got = ::read(fd, chunk, sizeof chunk)) > 0) all.append(chunk, static_cast<size_t>(got));
  return all;
}

// A LogPipe with the trainer's output on one side and the agent's on the other.
class LogPipeTest : public ::testing::Test {
 protected:
  LogPipeTest() : source_(MakePipe(O_NONBLOCK)), target_(MakePipe(O_NONBLOCK)), pipe_(target_.write.get()) {
    pipe_.Attach(std::move(source_.read));
  }
  void Print(const std::string& text) {
    ASSERT_EQ(::write(source_.write.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    pipe_.OnReadable();
    pipe_.Flush(now_);
  }
  std::string Output() { return Drain(target_.read.get()); }

  Pipe source_;
  Pipe target_;
  Time now_{};
  LogPipe pipe_;
};

TEST_F(LogPipeTest, CopiesCompleteLinesUnchanged) {
  Print("one\ntw");
  EXPECT_EQ(Output(), "one\n");
  Print("o\n");
  EXPECT_EQ(Output(), "two\n");
  const std::string odd("\0\xff\x1b[0m\r\n", 8);
  Print(odd);
  EXPECT_EQ(Output(), odd);
}

TEST_F(LogPipeTest, ALongLineIsWrittenInPieces) {
  const std::string piece(10'000, 'x');
  Print(piece);
  EXPECT_EQ(Output(), "");
  Print(piece);
  std::string all = Output();
  EXPECT_FALSE(all.empty());
  Print("\n");
  all += Output();
  EXPECT_TRUE(all == piece + piece + "\n") << all.size() << " bytes";
}

TEST_F(LogPipeTest, TheObserverSeesWhatACarriageReturnOverwrites) {
  std::vector<std::string> seen;
  pipe_.SetObserver([&](std::string_view line) { seen.emplace_back(line); });
  Print("one\r");
  EXPECT_TRUE(seen.empty()) << "a newline may follow";
  Print("\n\r10% of it\r2");
  Print("0% of it\n");
  EXPECT_EQ(seen, (std::vector<std::string>{"one", "10% of it", "20% of it"}));
  EXPECT_EQ(pipe_.tail(), (std::deque<std::string>{"one"}))
      << "a state of a bar says nothing about a failure";
  EXPECT_EQ(Output(), "one\r\n10% of it\n20% of it\n");
  EXPECT_EQ(pipe_.bytes_read(), 26u);
  const std::string metrics = "{\"step\": 3, \"text\": \"" + std::string(LogPipe::kMaxTailLine, 'x') + "\"}";
  Print(metrics + "\n");
  EXPECT_EQ(seen.back(), metrics) << "the observer gets longer lines than the tail";
  EXPECT_EQ(pipe_.tail().back().size(), LogPipe::kMaxTailLine);
}

TEST_F(LogPipeTest, AProgressBarIsWrittenNowAndThen) {
  for (int i = 0; i < 120; ++i) {  // 12 s
    Print("\r" + std::to_string(i) + "% of the epoch");
    now_ += milliseconds(100);
  }
  EXPECT_EQ(Output(), "0% of the epoch\n50% of the epoch\n100% of the epoch\n")
      << "a state is complete when it is overwritten";
  Print("\r120% of the epoch\nnext\n");
  EXPECT_EQ(Output(), "120% of the epoch\nnext\n");
  EXPECT_EQ(pipe_.tail(), std::deque<std::string>{"next"});
}

TEST_F(LogPipeTest, TheLastStateIsWrittenWithoutANewlineToo) {
  pipe_.SetPrefix("[rank 0] ");
  Print("\r 1%|█         | 1/100 [00:00<?, ?it/s]\r99%|█████████ | 99/100 [00:09<00:01, 10.0it/s]");
  pipe_.Finish(now_);
  EXPECT_EQ(Output(),
            "[rank 0]  1%|█         | 1/100 [00:00<?, ?it/s]\n[rank 0] 99%|█████████ | 99/100 [00:09<00:01, "
            "10.0it/s]\n");
  EXPECT_TRUE(pipe_.tail().empty());
}

TEST_F(LogPipeTest, AnErrorBehindABarIsInTheTail) {
  Print("\r94% of the epoch\r95% of the epochthe disk is full\n");
  EXPECT_EQ(pipe_.tail(), std::deque<std::string>{"the disk is full"});
  Print("\r1/9 [1.0it/s]\r2/9 [1.5it/s]Traceback (most recent call last):\n  File \"a.py\"\n");
  EXPECT_EQ(pipe_.tail(), (std::deque<std::string>{"the disk is full",
                                                   "Traceback (most recent call last):", "  File \"a.py\""}));
  Print("\r1/9 [1.0it/s]\rno memory is left\n");
  EXPECT_EQ(pipe_.tail().back(), "no memory is left");
}

TEST_F(LogPipeTest, ALineWithoutAnEndIsWrittenAfterAWhile) {
  Print("....");
  EXPECT_EQ(Output(), "");
  now_ += LogPipe::kPartialAge;
  Print("..");
  EXPECT_EQ(Output(), "......");
  Print(" done\n");
  EXPECT_EQ(Output(), " done\n");
  EXPECT_EQ(pipe_.tail(), std::deque<std::string>{"...... done"});
}

TEST_F(LogPipeTest, TheEndOfTheTrainerCompletesTheLine) {
  Print("half a line");
  pipe_.Finish(now_);
  EXPECT_EQ(Output(), "half a line\n");
  EXPECT_EQ(pipe_.tail().back(), "half a line");
  EXPECT_EQ(pipe_.read_fd(), -1);
}

TEST_F(LogPipeTest, FinishReadsTheRestEvenIfAWriterLives) {
  const std::string text = "left in the pipe\n";
  ASSERT_EQ(::write(source_.write.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  pipe_.Finish(now_);  // source_.write is still open, as in a grandchild
  EXPECT_EQ(Output(), text);
}

TEST_F(LogPipeTest, RemembersTheNewestLines) {
  for (int i = 0; i < 100; ++i) Print("line " + std::to_string(i) + "\n");
  ASSERT_EQ(pipe_.tail().size(), LogPipe::kTailLines);
  EXPECT_EQ(pipe_.tail().front(), "line 80");
  EXPECT_EQ(pipe_.tail().back(), "line 99");
  Print(std::string(5000, 'y') + "\n");
  EXPECT_EQ(pipe_.tail().back(), std::string(LogPipe::kMaxTailLine, 'y'));
}

TEST_F(LogPipeTest, ASlowReaderSlowsTheTrainerDownFirst) {
  const std::string line(1023, 'z');
  int written = 0;
  // Until the trainer's own pipe is full, too.
  while (::write(source_.write.get(), (line + "\n").data(), line.size() + 1) > 0) {
    ++written;
    pipe_.OnReadable();
    pipe_.Flush(now_);
  }
  EXPECT_EQ(pipe_.read_fd(), -1) << "a full buffer reads no more";
  std::string all;
  for (int i = 0; i < 100; ++i) {
    all += Output();
    pipe_.OnReadable();
    pipe_.Flush(now_);
  }
  all += Output();
  EXPECT_EQ(all.size(), static_cast<size_t>(written) * 1024) << "nothing is lost";
  EXPECT_EQ(pipe_.dropped_bytes(), 0u);
}

TEST_F(LogPipeTest, AStuckReaderDoesNotBlockTheTrainer) {
  const std::string line(1023, 'z');
  uint64_t written = 0;
  for (int i = 0; i < 2000; ++i) {
    now_ += milliseconds(20);
    if (::write(source_.write.get(), (line + "\n").data(), line.size() + 1) > 0) written += line.size() + 1;
    pipe_.OnReadable();
    pipe_.Flush(now_);
  }
  EXPECT_GT(written, 1'500'000u) << "the trainer continues";
  EXPECT_GT(pipe_.dropped_bytes(), 0u);
  std::string all;
  for (int i = 0; i < 100; ++i) {
    all += Output();
    pipe_.OnReadable();
    pipe_.Flush(now_);
  }
  EXPECT_NE(all.find(std::to_string(pipe_.dropped_bytes()) + " bytes of output dropped"), std::string::npos);
}

TEST_F(LogPipeTest, AClosedReaderIsHarmless) {
  ::signal(SIGPIPE, SIG_IGN);  // as the agent does
  target_.read.Reset();
  for (int i = 0; i < 1000; ++i) Print("not read\n");
  EXPECT_EQ(pipe_.write_fd(), -1);
}

TEST_F(LogPipeTest, ANewStreamStartsANewTail) {
  Print("old\n");
  Pipe next = MakePipe(O_NONBLOCK);
  pipe_.Finish(now_);
  pipe_.Attach(std::move(next.read));
  EXPECT_TRUE(pipe_.tail().empty());
  ASSERT_EQ(::write(next.write.get(), "new\n", 4), 4);
  pipe_.OnReadable();
  pipe_.Flush(now_);
  EXPECT_EQ(Output(), "old\nnew\n");
}

}  // namespace
}  // namespace ringmaster::agent
