// SPDX-License-Identifier: Apache-2.0

// A program, a user of the namespace or a manifest chooses what these texts contain.
#include "cli/write_text.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/fd.h"
#include "base/pipe.h"

namespace ringmaster::cli {
namespace {

constexpr const char* kHostile =
    "\x1b]0;title\a\x1b[2J\x1b[31mred\x1b[0m\rover\bwrite \xe2\x80\xae"
    "desrever\xe2\x81\xa6 \xc2\x9b"
    "31m bell\a\x7f\x1b(0 \x1b"
    "c end\n";

// Returns what `write` has written to a new terminal, or to a pipe.
template <class Write>
std::string Written(bool terminal, const Write& write) {
  int ends[2] = {-1, -1};
  if (terminal)
    EXPECT_EQ(::openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr), 0);
  else
    EXPECT_EQ(::pipe(ends), 0);
  const Fd ours(ends[0]);
  std::FILE* const stream = ::fdopen(ends[1], "w");
  write(stream);
  std::fclose(stream);
  // A terminal may return each line by a separate read, and reports the end as EIO.
  std::string read;
  char part[4096];
  for (ssize_t length = 0; (length = ::read(ours.get(), part, sizeof(part))) > 0;)
    read.append(part, static_cast<size_t>(length));
  std::erase(read, '\r');  // of the terminal: \n becomes \r\n
  return read;
}

TEST(WriteText, ATerminalGetsOnlyColours) {
  const std::string read = Written(true, [](std::FILE* stream) { WriteText(stream, kHostile); });
  EXPECT_EQ(read, "\x1b[31mred\x1b[0m\x1b[0m\noverwrite desrever 31m bell  end\n");
}

TEST(WriteText, AFileGetsEveryByte) {
  std::string all = kHostile;
  std::erase(all, '\r');
  EXPECT_EQ(Written(false, [](std::FILE* stream) { WriteText(stream, kHostile); }), all);
}

TEST(WriteText, PrintFormatsAndFilters) {
  EXPECT_EQ(Written(true, [](std::FILE* stream) { Print(stream, "{}: {}\n", 3, "a\x1b[2Jb"); }), "3: ab\n");
}

TEST(WriteText, BytesOneByOneDoNothingOnATerminal) {
  const std::string read = Written(true, [](std::FILE* stream) {
    ByteWriter writer(stream);
    for (const char* c = kHostile; *c != '\0'; ++c) writer.Put(static_cast<unsigned char>(*c));
  });
  for (const char* const acts : {"\x1b", "\a", "\b", "\x7f", "\xe2\x80\xae", "\xe2\x81\xa6", "\xc2\x9b"})
    EXPECT_EQ(read.find(acts), std::string::npos) << acts;
  EXPECT_NE(read.find("end\n"), std::string::npos);
  const std::string text = "na\xc3\xafve \xe2\x82\xac\t\xf0\x9f\x98\x80\n";
  EXPECT_EQ(Written(false,
                    [&](std::FILE* stream) {
                      ByteWriter writer(stream);
                      for (const char c : text) writer.Put(static_cast<unsigned char>(c));
                    }),
            text);
}

}  // namespace
}  // namespace ringmaster::cli
