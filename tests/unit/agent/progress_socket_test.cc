// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/program/progress_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/temp_folder.h"
#include "worker/agent/net/unix_address.h"
#include "worker/agent/shell/private_folder.h"

namespace ringmaster::agent {
namespace {

class Sender {
 public:
  explicit Sender(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)), address_(UnixAddress(path).value()) {}
  bool Send(const std::string& text) {
    return ::sendto(socket_.get(), text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&address_),
                    sizeof address_) == static_cast<ssize_t>(text.size());
  }

 private:
  Fd socket_;
  sockaddr_un address_;
};

std::vector<std::string> ReadAll(ProgressSocket& socket) {
  std::vector<std::string> messages;
  socket.Read([&](std::string_view message) { messages.emplace_back(message); });
  return messages;
}

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  CHECK(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

TEST(ProgressSocket, OnlyItsUserReachesItAndNothingIsLeft) {
  const TempFolder parent;
  {
    Result<PrivateFolder> folder = PrivateFolder::Create(parent.path(), ProgressSocket::kLongestPath);
    ASSERT_TRUE(folder.ok()) << folder.error().message;
    EXPECT_TRUE(folder->path().starts_with(parent.path() + "/"));
    EXPECT_EQ(ModeOf(folder->path()), 0700u);
    Result<ProgressSocket> socket = ProgressSocket::Open(folder->path());
    ASSERT_TRUE(socket.ok()) << socket.error().message;
    EXPECT_EQ(ModeOf(socket->path()), 0600u);
    Sender sender(socket->path());
    EXPECT_TRUE(sender.Send("one"));
    EXPECT_TRUE(sender.Send(""));
    EXPECT_TRUE(sender.Send("two"));
    EXPECT_EQ(ReadAll(*socket), (std::vector<std::string>{"one", "", "two"}));
    EXPECT_TRUE(ReadAll(*socket).empty());
  }
  EXPECT_TRUE(std::filesystem::is_empty(parent.path()));
}

TEST(ProgressSocket, LongMessagesAreDropped) {
  const TempFolder folder;
  Result<ProgressSocket> socket = ProgressSocket::Open(folder.path());
  ASSERT_TRUE(socket.ok());
  Sender sender(socket->path());
  const std::string longest(ProgressSocket::kMaxMessage, 'x');
  EXPECT_TRUE(sender.Send(longest + "x"));
  EXPECT_TRUE(sender.Send(longest));
  EXPECT_EQ(ReadAll(*socket), std::vector<std::string>{longest});
}

TEST(PrivateFolder, AFolderThatIsMissingOrTooLongIsReplaced) {
  const TempFolder folder;
  for (const std::string& bad : {folder.path() + "/missing", "/" + std::string(120, 'x'), std::string()}) {
    Result<PrivateFolder> created = PrivateFolder::Create(bad, 100);
    ASSERT_TRUE(created.ok()) << created.error().message;
    EXPECT_LE(created->path().size(), 100u);
    EXPECT_EQ(ModeOf(created->path()), 0700u);
  }
}

}  // namespace
}  // namespace ringmaster::agent
