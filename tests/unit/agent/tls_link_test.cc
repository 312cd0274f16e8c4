// SPDX-License-Identifier: Apache-2.0

// The agent's link to a real rendezvous server over TLS: trusted and untrusted certificates, and their
// rotation.
#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <string>

#include "base/file.h"
#include "operator/identity/x509.h"
#include "rendezvous/server.h"
#include "tests/unit/agent/rig.h"
#include "worker/agent/shell/coordinator_link.h"

namespace ringmaster::agent {
namespace {

using identity::KeyPair;
using std::chrono::hours;

KeyPair Authority() { return identity::MakeAuthority("test", kube::WallNow(), hours(10)).value(); }
KeyPair Leaf(const KeyPair& authority, const std::string& name) {
  return identity::MakeLeaf(authority, {name}, kube::WallNow(), hours(1)).value();
}

class TlsLink : public testing::Test {
 protected:
  void SetUp() override { Start(Leaf(authority_, "127.0.0.1")); }

  void Start(const KeyPair& leaf) {
    rendezvous::ServerOptions options;
    options.secret = "s";
    options.tls_cert_pem = leaf.cert_pem;
    options.tls_key_pem = leaf.key_pem;
    auto server = rendezvous::Server::Start(options, {});
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
    rendezvous::CoordinatorOptions job;
    job.job = "rm/job";
    server_->AddJob(job);
  }

  // Connects; returns why not.
  Status Bring(CoordinatorLink& link) {
    link.Connect(Now());
    const Time limit = Now() + kPatience;
    while (link.state() != CoordinatorLink::State::kUp && Now() < limit) {
      pollfd wait = link.PollFor();
      ::poll(&wait, 1, 100);
      RM_TRY(link.OnReady(wait.revents, Now()));
    }
    return Ok();
  }
  std::string CaFile(const KeyPair& authority) {
    const std::string path = folder_.File("ca.crt");
    CHECK(WriteFileAtomic(path, authority.cert_pem).ok());
    return path;
  }
  CoordinatorLink Link(const std::string& ca_file, const std::string& host = "127.0.0.1") {
    return {host, std::to_string(server_->port()), ca_file};
  }
  // Sends Hello and returns whether Welcome follows.
  bool IsWelcome(CoordinatorLink& link) {
    EXPECT_TRUE(link.Send(rendezvous::Hello{"rm/job", "p", "a", "s", 0}).ok());
    const Time limit = Now() + kPatience;
    while (Now() < limit) {
      pollfd wait = link.PollFor();
      ::poll(&wait, 1, 100);
      const Status status = link.OnReady(wait.revents, Now());
      auto message = link.Next();
      if (message.ok() && message.value())
        return std::holds_alternative<rendezvous::Welcome>(*message.value());
      if (!status.ok()) return false;
    }
    return false;
  }

  const KeyPair authority_ = Authority();
  TempFolder folder_;
  std::unique_ptr<rendezvous::Server> server_;
};

TEST_F(TlsLink, TheRightAuthorityIsTrusted) {
  CoordinatorLink link = Link(CaFile(authority_));
  const Status up = Bring(link);
  ASSERT_TRUE(up.ok()) << up.error().message;
  EXPECT_TRUE(IsWelcome(link));
}

TEST_F(TlsLink, AnotherAuthorityIsNotTrusted) {
  CoordinatorLink link = Link(CaFile(Authority()));
  const Status up = Bring(link);
  ASSERT_FALSE(up.ok());
  EXPECT_EQ(up.error().code, Code::kForbidden);
  EXPECT_NE(up.error().message.find("certificate"), std::string::npos) << up.error().message;
}

TEST_F(TlsLink, ACertificateForAnotherNameIsNotTrusted) {
  server_.reset();
  Start(Leaf(authority_, "another.host"));
  CoordinatorLink link = Link(CaFile(authority_));
  const Status up = Bring(link);
  ASSERT_FALSE(up.ok());
  EXPECT_EQ(up.error().code, Code::kForbidden);
}

TEST_F(TlsLink, ConnectsByName) {
  server_.reset();
  Start(Leaf(authority_, "localhost"));
  CoordinatorLink link = Link(CaFile(authority_), "localhost");
  const Status up = Bring(link);
  ASSERT_TRUE(up.ok()) << up.error().message;
  EXPECT_TRUE(IsWelcome(link));
}

TEST_F(TlsLink, PlainTextIsRefused) {
  CoordinatorLink link = Link("");
  ASSERT_TRUE(Bring(link).ok());
  EXPECT_FALSE(IsWelcome(link));
}

TEST_F(TlsLink, AFileWithoutAuthorityIsAnError) {
  CHECK(WriteFileAtomic(folder_.File("empty"), "nothing\n").ok());
  CoordinatorLink link = Link(folder_.File("empty"));
  const Status up = Bring(link);
  ASSERT_FALSE(up.ok());
  EXPECT_NE(up.error().message.find("empty: no CA certificate"), std::string::npos) << up.error().message;
}

TEST_F(TlsLink, ANewCertificateServesNewConnectionsAndKeepsTheOld) {
  CoordinatorLink before = Link(CaFile(authority_));
  ASSERT_TRUE(Bring(before).ok());
  const KeyPair next = Authority();
  const KeyPair leaf = Leaf(next, "127.0.0.1");
  ASSERT_TRUE(server_->SetCertificate(leaf.cert_pem, leaf.key_pem).ok());
  EXPECT_TRUE(IsWelcome(before));
  CoordinatorLink after = Link(CaFile(next));
  ASSERT_TRUE(Bring(after).ok());
  EXPECT_TRUE(IsWelcome(after));
  EXPECT_FALSE(server_->SetCertificate("nonsense", "nonsense").ok());
}

}  // namespace
}  // namespace ringmaster::agent
