// SPDX-License-Identifier: Apache-2.0

#include "cli/launch/ignore_rules.h"

#include <gtest/gtest.h>

#include "cli/launch/secrets.h"

namespace ringmaster::cli::launch {
namespace {

TEST(MatchesGlob, HasTheWildcardsOfGit) {
  struct Case {
    const char* pattern;
    const char* text;
    bool matches;
  };
  for (const Case& c : {Case{"*.py", "a.py", true},
                        {"*.py", "b/a.py", false},
                        {"a?c", "abc", true},
                        {"a?c", "a/c", false},
                        {"[a-c]x", "bx", true},
                        {"[!a-c]x", "bx", false},
                        {"[!a-c]x", "dx", true},
                        {"[]]x", "]x", true},
                        {"[a", "[a", false},
                        {"\\*x", "*x", true},
                        {"\\*x", "ax", false},
                        {"**/x", "x", true},
                        {"**/x", "a/b/x", true},
                        {"a/**", "a/b/c", true},
                        {"a/**", "a/", false},
                        {"a/**/x", "a/x", true},
                        {"a/**/x", "a/b/c/x", true},
                        {"a**x", "abx", true},
                        {"a**x", "a/x", false},
                        {"", "", true},
                        {"*", "", true}})
    EXPECT_EQ(MatchesGlob(c.pattern, c.text), c.matches) << c.pattern << " " << c.text;
}

TEST(IgnoreRules, LastMatchingPatternDecides) {
  IgnoreRules rules;
  rules.Add("", "# comment\n*.log\n!keep.log\n/top\nfolder/\na/b\n\\#odd\nspace \nkept\\ \n\r\n");
  rules.Add("sub", "!x.log\n/only\n");
  struct Case {
    const char* path;
    bool is_folder;
    bool ignored;
  };
  for (const Case& c : {Case{"x.log", false, true},
                        {"deep/x.log", false, true},
                        {"keep.log", false, false},
                        {"sub/x.log", false, false},
                        {"top", false, true},
                        {"deep/top", false, false},
                        {"folder", true, true},
                        {"folder", false, false},
                        {"deep/folder", true, true},
                        {"a/b", false, true},
                        {"x/a/b", false, false},
                        {"#odd", false, true},
                        {"space", false, true},
                        {"kept ", false, true},
                        {"sub/only", false, true},
                        {"only", false, false},
                        {"subway/only", false, false},
                        {"train.py", false, false}})
    EXPECT_EQ(rules.Ignores(c.path, c.is_folder), c.ignored) << c.path;
}

TEST(Secrets, AreRecognisedByNameAndByText) {
  for (const char* name : {".env", ".env.local", "prod.env", "id_rsa", "id_ed25519.pub", "server.pem",
                           "TLS.KEY", ".netrc", "credentials", "credentials.json", "kubeconfig",
                           "kubeconfig.yaml", ".aws", "secrets.yaml", "hf_token.txt"})
    EXPECT_TRUE(IsSecretName(name)) << name;
  for (const char* name : {"train.py", ".env.example", "environment.yml", "keys.py", "secrets.py",
                           "tokenizer.json", "monkey", "credentials.py"})
    EXPECT_FALSE(IsSecretName(name)) << name;
  EXPECT_TRUE(HasPrivateKey("x\n-----BEGIN RSA PRIVATE KEY-----\nabc\n"));
  EXPECT_TRUE(HasPrivateKey("-----BEGIN OPENSSH PRIVATE KEY-----"));
  EXPECT_FALSE(HasPrivateKey("-----BEGIN CERTIFICATE-----\nabc"));
}

}  // namespace
}  // namespace ringmaster::cli::launch
