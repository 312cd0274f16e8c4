// SPDX-License-Identifier: Apache-2.0

// The files that travel with a job, and their archive, as git and tar see them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/file.h"
#include "base/rng.h"
#include "cli/launch/code_archive.h"
#include "cli/launch/code_folder.h"
#include "tests/temp_folder.h"

namespace ringmaster::cli::launch {
namespace {

namespace fs = std::filesystem;

std::set<std::string> PathsOf(const CodeFolder& code) {
  std::set<std::string> paths;
  for (const CodeFile& file : code.files) paths.insert(file.path);
  return paths;
}

std::set<std::string> LeftOutOf(const CodeFolder& code) {
  std::set<std::string> paths;
  for (const LeftOut& left_out : code.left_out) paths.insert(left_out.path);
  return paths;
}

// No user's configuration of git applies in a test.
class Code : public ::testing::Test {
 protected:
  Code() {
    ::setenv("HOME", home_.path().c_str(), 1);
    ::unsetenv("XDG_CONFIG_HOME");
  }
  const TempFolder home_;
  const TempFolder folder_;
};

TEST_F(Code, LeavesOutWhatGitIgnoresAndSecrets) {
  for (const char* path : {"train.py", "lib/model.py", "lib/x.log", "data/big.bin", "lib/__pycache__/m.pyc",
                           "ringmaster-out/a", "user.tmp", "info.x", ".env", "lib/.aws/config", "notes.txt"})
    folder_.Write(path, "text");
  folder_.Write("lib/notes.txt", "-----BEGIN PRIVATE KEY-----\n");
  folder_.Write("venv/pyvenv.cfg", "");
  folder_.Write("venv/bin/python", "");
  folder_.Write(".gitignore", "/data\n");
  folder_.Write("lib/.gitignore", "*.log\n");
  folder_.Write(".git/info/exclude", "*.x\n");
  home_.Write("ignores", "*.tmp\n");
  home_.Write(".gitconfig", "[core]\n\texcludesFile = ~/ignores\n");
  const auto code = ReadCode(folder_.path());
  ASSERT_TRUE(code.ok()) << code.error().message;
  EXPECT_EQ(PathsOf(*code),
            (std::set<std::string>{".gitignore", "lib/.gitignore", "lib/model.py", "notes.txt", "train.py"}));
  EXPECT_EQ(LeftOutOf(*code), (std::set<std::string>{".env", "lib/.aws/", "lib/notes.txt"}));
  // The rules of the repository apply in a folder of it, and an ignored folder is refused.
  const auto below = ReadCode(folder_.path() + "/lib");
  ASSERT_TRUE(below.ok());
  EXPECT_EQ(PathsOf(*below), (std::set<std::string>{".gitignore", "model.py"}));
  const auto ignored = ReadCode(folder_.path() + "/data");
  ASSERT_FALSE(ignored.ok());
  EXPECT_NE(ignored.error().message.find("git ignores this folder"), std::string::npos);
}

TEST_F(Code, LeavesOutCredentialsOfTools) {
  for (const char* path : {"train.py", "credentials.py", "gcp-Credentials.json", "client_secret_1.json",
                           "kaggle.json", ".docker/config.json", "infra/terraform.tfstate",
                           "infra/terraform.tfstate.backup", "infra/prod.tfvars", "infra/main.tf"})
    folder_.Write(path, "text");
  const auto code = ReadCode(folder_.path());
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(PathsOf(*code), (std::set<std::string>{"credentials.py", "infra/main.tf", "train.py"}));
  EXPECT_EQ(
      LeftOutOf(*code),
      (std::set<std::string>{".docker/", "client_secret_1.json", "gcp-Credentials.json", "infra/prod.tfvars",
                             "infra/terraform.tfstate", "infra/terraform.tfstate.backup", "kaggle.json"}));
}

TEST_F(Code, AWorktreeAndASubmoduleHaveTheExcludesOfTheirRepository) {
  home_.Write("repository/.git/info/exclude", "*.x\n");
  home_.Write("repository/.git/worktrees/tree/commondir", "../..\n");
  home_.Write("repository/.git/modules/sub/info/exclude", "*.y\n");
  for (const char* path : {"train.py", "a.x", "a.y", "vendor/lib.py"}) folder_.Write(path, "text");
  folder_.Write("vendor/.git", "gitdir: ../../elsewhere\n");
  folder_.Write(".git", "gitdir: " + home_.path() + "/repository/.git/worktrees/tree\n");
  auto code = ReadCode(folder_.path());
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(PathsOf(*code), (std::set<std::string>{"a.y", "train.py", "vendor/lib.py"}));
  EXPECT_TRUE(code->left_out.empty());
  const fs::path module = fs::path(home_.path()) / "repository/.git/modules/sub";
  folder_.Write(".git",
                "gitdir: " + module.lexically_relative(fs::canonical(folder_.path())).string() + "\n");
  code = ReadCode(folder_.path());
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(PathsOf(*code), (std::set<std::string>{"a.x", "train.py", "vendor/lib.py"}));
}

TEST_F(Code, LinksStayInTheFolder) {
  folder_.Write("sub/a.py", "x");
  fs::create_symlink("sub/a.py", folder_.path() + "/inside");
  fs::create_symlink("../../outside", folder_.path() + "/sub/outside");
  fs::create_symlink("/etc/passwd", folder_.path() + "/absolute");
  const auto code = ReadCode(folder_.path());
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(PathsOf(*code), (std::set<std::string>{"inside", "sub/a.py"}));
  EXPECT_EQ(LeftOutOf(*code), (std::set<std::string>{"absolute", "sub/outside"}));
}

TEST_F(Code, TarReadsTheArchive) {
  const std::string deep = std::string(70, 'd') + "/" + std::string(80, 'f') + ".py";
  folder_.Write("train.py", std::string(513, 'x'));
  folder_.Write("empty", "");
  folder_.Write(deep, "deep\n");
  folder_.Write("run.sh", "#!/bin/sh\n");
  fs::permissions(folder_.path() + "/run.sh", fs::perms::owner_all);
  fs::create_symlink("train.py", folder_.path() + "/link.py");
  const auto code = ReadCode(folder_.path());
  ASSERT_TRUE(code.ok());
  const auto archive = PackCode(*code);
  ASSERT_TRUE(archive.ok());
  EXPECT_EQ(archive->name.size(), std::string("ringmaster-code-").size() + 20);

  const TempFolder target;
  const std::string file = target.Write("code.tar.gz", archive->bytes);
  const std::string out = target.path() + "/out";
  fs::create_directory(out);
  ASSERT_EQ(std::system(("tar -xzof " + file + " -C " + out).c_str()), 0);
  const auto again = ReadCode(out);
  ASSERT_TRUE(again.ok());
  ASSERT_EQ(again->files.size(), code->files.size());
  for (size_t i = 0; i < code->files.size(); ++i) {
    EXPECT_EQ(again->files[i].path, code->files[i].path);
    EXPECT_EQ(again->files[i].content, code->files[i].content);
    EXPECT_EQ(again->files[i].link, code->files[i].link);
    EXPECT_EQ(again->files[i].executable, code->files[i].executable);
  }
  // The name depends on the content and on nothing else.
  EXPECT_EQ(PackCode(*again)->name, archive->name);
  std::ofstream(out + "/train.py") << "y";
  EXPECT_NE(PackCode(*ReadCode(out))->name, archive->name);
  EXPECT_EQ(CodeConfigMap(*archive)["metadata"]["name"], archive->name);
}

TEST_F(Code, TooMuchIsRefusedWithTheLargestFile) {
  SplitMix64 dice(1);
  std::string noise(kMostArchiveBytes + 4096, '\0');
  for (char& c : noise) c = static_cast<char>(dice.Next());
  folder_.Write("weights.bin", noise);
  folder_.Write("train.py", "x");
  const auto archive = PackCode(*ReadCode(folder_.path()));
  ASSERT_FALSE(archive.ok());
  EXPECT_NE(archive.error().message.find("largest files are weights.bin"), std::string::npos);
  EXPECT_NE(archive.error().message.find("--no-code"), std::string::npos);
}

}  // namespace
}  // namespace ringmaster::cli::launch
