// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/error_lines.h"

#include <gtest/gtest.h>

#include <deque>
#include <sstream>
#include <string>

#include "worker/agent/shell/log_pipe.h"

namespace ringmaster::agent {
namespace {

constexpr const char* kImportError =
    "Traceback (most recent call last):\n"
    "  File \"/code/train.py\", line 9, in <module>\n"
    "    import flash_attn\n"
    "ModuleNotFoundError: No module named 'flash_attn'\n";

// What torchrun of PyTorch 2.15 prints after a rank has failed. `cause`: of the report.
std::string TorchrunAfter(const std::string& exit_code, const std::string& cause) {
  std::string text =
      "E1127 20:31:07.412000 4711 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: " +
      exit_code + ") local_rank: 0 (pid: 4720) of binary: /usr/bin/python3\n" +
      "Traceback (most recent call last):\n"
      "  File \"<frozen runpy>\", line 198, in _run_module_as_main\n";
  for (int frame = 0; frame < 8; ++frame)
    text += "  File \"/torch/distributed/run.py\", line 9" + std::to_string(frame) +
            ", in run\n    elastic_launch(\n    ^^^^^^^^^^^^^^^\n";
  return text +
         "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
         "============================================================\n"
         "/code/train.py FAILED\n"
         "------------------------------------------------------------\n"
         "Failures:\n"
         "  <NO_OTHER_FAILURES>\n"
         "------------------------------------------------------------\n"
         "Root Cause (first observed failure):\n"
         "[0]:\n"
         "  time      : 2026-11-27_20:31:07\n"
         "  host      : train-1-1\n"
         "  rank      : 1 (local_rank: 0)\n"
         "  exitcode  : " +
         exit_code +
         " (pid: 4720)\n"
         "  error_file: <N/A>\n"
         "  traceback : " +
         cause +
         "\n"
         "============================================================\n";
}

const std::string kUnknown = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";

// Feeds it text as LogPipe does.
class ErrorLinesTest : public testing::Test {
 protected:
  void Print(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      lines_.Take(line, now_);
      if (tail_.size() == LogPipe::kTailLines) tail_.pop_front();
      tail_.push_back(line.substr(0, LogPipe::kMaxTailLine));
    }
  }
  std::string Reason() const { return lines_.Reason(tail_); }

  ErrorLines lines_;
  std::deque<std::string> tail_;
  Time now_{seconds(1000)};
};

TEST_F(ErrorLinesTest, TheLastLineIsTheReasonWhenItSaysSomething) {
  EXPECT_EQ(Reason(), "");
  Print(" \n");
  EXPECT_EQ(Reason(), "");
  Print(kImportError);
  EXPECT_EQ(Reason(), "ModuleNotFoundError: No module named 'flash_attn'");
  Print("the data is broken\n \n\n");
  EXPECT_EQ(Reason(), "the data is broken");
  lines_.Clear();
  tail_.clear();
  Print("----\n");
  EXPECT_EQ(Reason(), "----") << "there is no other one";
}

TEST_F(ErrorLinesTest, TheExceptionOfTheRankIsTheReasonWithTorchrun) {
  Print("loading\n");
  Print(kImportError);
  Print(TorchrunAfter("1", kUnknown));
  EXPECT_EQ(Reason(), "ModuleNotFoundError: No module named 'flash_attn'");
}

TEST_F(ErrorLinesTest, AllFormsOfExceptionsAreFound) {
  for (const std::string& text :
       {// As torch.distributed prints it, and torchrun with --tee.
        std::string("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\", line 1, in f\n"
                    "[rank1]:     f()\n[rank1]: ValueError: bad\n"),
        std::string("[default0]:Traceback (most recent call last):\n[default0]:  File \"a.py\", line 1\n"
                    "[default0]:    f()\n[default0]:ValueError: bad\n"),
        std::string(
            "[default0]:[rank1]: Traceback (most recent call last):\n[default0]:[rank1]:   File \"a.py\"\n"
            "[default0]:[rank1]: ValueError: bad\n"),
        // A second one while the first is handled.
        std::string(
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    f()\nKeyError: 1\n"
            "\nDuring handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\n  File \"a.py\", line 2, in f\n    f()\n"
            "ValueError: bad\nin two lines\n"),
        // Without the line that begins a traceback.
        std::string("  File \"a.py\", line 1\n    f(\n     ^\nValueError: bad\n"),
        std::string(
            "Traceback (most recent call last):\r\n  File \"a.py\", line 1, in f\r\nValueError: bad\r\n")}) {
    SCOPED_TRACE(text);
    lines_.Clear();
    Print(text + "epoch 3\n" + TorchrunAfter("1", kUnknown));
    EXPECT_NE(Reason().find("ValueError: bad"), std::string::npos) << Reason();
  }
  Print(
      "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    "
      "f()\nKeyboardInterrupt\n====\n");
  EXPECT_EQ(Reason(), "KeyboardInterrupt");
  Print("Traceback (most recent call last):\n  File \"a.py\", line 1, in f\ntraining continues: yes\n====\n");
  EXPECT_EQ(Reason(), "KeyboardInterrupt") << "another process has printed the last line";
}

TEST_F(ErrorLinesTest, WithoutAnExceptionItIsTheNewestLineOfTheRank) {
  Print("W1127 20:31:00.000000 4711 torch/distributed/run.py:852] OMP_NUM_THREADS is 1\n");
  Print(TorchrunAfter("3", kUnknown));
  EXPECT_EQ(Reason().find("E1127 "), 0u) << Reason();
  EXPECT_NE(Reason().find("failed (exitcode: 3) local_rank: 0"), std::string::npos) << Reason();

  lines_.Clear();
  Print("starting\nthe data is broken\n" + TorchrunAfter("3", kUnknown));
  EXPECT_EQ(Reason(), "the data is broken");
}

TEST_F(ErrorLinesTest, ASignalIsTheReasonExceptAnAbort) {
  Print(kImportError);
  Print("continuing without it\n" + TorchrunAfter("-9", "Signal 9 (SIGKILL) received by PID 4720"));
  EXPECT_EQ(Reason(), "Signal 9 (SIGKILL) received by PID 4720");

  lines_.Clear();
  Print("RuntimeError: CUDA error\n" + TorchrunAfter("-6", "Signal 6 (SIGABRT) received by PID 4720"));
  EXPECT_EQ(Reason(), "RuntimeError: CUDA error");
}

TEST_F(ErrorLinesTest, AReportWithATracebackIsNotTheException) {
  Print(kImportError);
  Print(TorchrunAfter("1",
                      "Traceback (most recent call last):\n    File \"/code/train.py\", line 9, in main\n"
                      "      import flash_attn\n  ModuleNotFoundError: No module named 'flash_attn'\n  "));
  EXPECT_EQ(Reason(), "ModuleNotFoundError: No module named 'flash_attn'");
}

TEST_F(ErrorLinesTest, ARankThatLosesTheFailedOneIsAConsequence) {
  const std::string lost =
      "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"a.py\", line 1, in f\n"
      "[rank0]: RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.1]:34155\n";
  Print(kImportError);
  now_ += seconds(30);
  Print(lost + TorchrunAfter("1", kUnknown));
  EXPECT_EQ(Reason(), "ModuleNotFoundError: No module named 'flash_attn'");

  now_ += seconds(90);
  Print(lost + TorchrunAfter("1", kUnknown));
  EXPECT_EQ(Reason(), "[rank0]: RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.1]:34155")
      << "the first exception was handled long ago";
}

}  // namespace
}  // namespace ringmaster::agent
