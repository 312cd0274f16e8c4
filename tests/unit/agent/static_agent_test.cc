// SPDX-License-Identifier: Apache-2.0

// The agent's program in a root file system that holds nothing but the program and what a kubelet mounts: no
// C library, no certificates, no nsswitch.conf. It finds the coordinator by DNS and connects by TLS.
#include <arpa/inet.h>
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/pipe.h"
#include "operator/identity/x509.h"
#include "rendezvous/server.h"
#include "tests/unit/agent/rig.h"

namespace ringmaster::agent {
namespace {

constexpr const char* kHost = "ringmaster-rendezvous.system.svc";
constexpr const char* kFullName = "ringmaster-rendezvous.system.svc.cluster.test";
constexpr int64_t kMaxRssKib = 6 << 10;

int Execute(const std::vector<std::string>& words, mode_t mask = 022) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::umask(mask);
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(StaticAgent, NeedsNoLoaderAndNoLibrary) {
  const std::string program = ReadFile(AGENT_UNDER_TEST).value();
  Elf64_Ehdr header = {};
  std::memcpy(&header, program.data(), sizeof header);
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part = {};
    std::memcpy(&part, program.data() + header.e_phoff + i * sizeof part, sizeof part);
    EXPECT_NE(part.p_type, PT_INTERP);
    EXPECT_NE(part.p_type, PT_DYNAMIC);
  }
}

TEST(StaticAgent, InstallsItselfForAnyUser) {
  TempFolder folder;
  const std::string copy = folder.File("bin/agent");
  EXPECT_EQ(Execute({AGENT_UNDER_TEST, "install", copy}, 077), 0);
  EXPECT_EQ(Execute({AGENT_UNDER_TEST, "install", copy}), 0) << "a container that starts again replaces it";
  EXPECT_EQ(ReadFile(copy).value(), ReadFile(AGENT_UNDER_TEST).value());
  struct stat found = {};
  ASSERT_EQ(::stat(copy.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0755U);
  EXPECT_NE(Execute({AGENT_UNDER_TEST, "install", "/proc/no/agent"}), 0);
}

// A name server on port 53 of loopback that knows one name with one address.
class NameServer {
 public:
  NameServer() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(53);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~NameServer() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }
  int refused() const { return refused_; }

 private:
  void Serve() {
    char query[512];
    sockaddr_in client = {};
    while (true) {
      socklen_t length = sizeof client;
      const ssize_t got =
          ::recvfrom(socket_.get(), query, sizeof query, 0, reinterpret_cast<sockaddr*>(&client), &length);
      if (got <= 12) return;
      const std::string answer = Answer({query, static_cast<size_t>(got)});
      ::sendto(socket_.get(), answer.data(), answer.size(), 0, reinterpret_cast<const sockaddr*>(&client),
               length);
    }
  }

  std::string Answer(const std::string& query) {
    std::string name;
    size_t at = 12;
    for (; query[at] != 0; at += static_cast<size_t>(query[at]) + 1) {
      if (!name.empty()) name += '.';
      name += query.substr(at + 1, static_cast<size_t>(query[at]));
    }
    const char type = query[at + 2];  // 1: A
    const bool known = name == kFullName;
    if (!known) ++refused_;
    std::string reply = query.substr(0, at + 5);
    reply[2] = static_cast<char>(0x84);                // an authoritative answer
    reply[3] = static_cast<char>(known ? 0 : 3);       // 3: no such name
    reply[7] = static_cast<char>(known && type == 1);  // answers
    reply[8] = reply[9] = reply[10] = reply[11] = 0;   // no other records
    if (known && type == 1) {
      const char record[] = {'\xc0', 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 0, 0, 1};
      reply.append(record, sizeof record);
    }
    return reply;
  }

  const Fd socket_;
  std::atomic<int> refused_{0};
  std::thread thread_;
};

// Moves this process to a new network, where it may use port 53; returns false without the right.
bool EnterNetwork() {
  if (::unshare(::geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback = {};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  return ::ioctl(any.get(), SIOCSIFFLAGS, &loopback) == 0;
}

TEST(StaticAgent, ConnectsFromAnEmptyFileSystem) {
  if (!EnterNetwork()) GTEST_SKIP() << "this machine lets this user create no network namespace";
  ::signal(SIGPIPE, SIG_IGN);  // as the operator does: the server may write to an agent that has just ended
  const auto authority = identity::MakeAuthority("test", kube::WallNow(), std::chrono::hours(1)).value();
  const auto leaf = identity::MakeLeaf(authority, {kHost}, kube::WallNow(), std::chrono::hours(1)).value();
  const Pipe heard = MakePipe().value();
  rendezvous::ServerOptions options;
  options.tls_cert_pem = leaf.cert_pem;
  options.tls_key_pem = leaf.key_pem;
  options.authenticate = [&](const rendezvous::Hello& hello, const std::function<void(Status)>& done) {
    done(hello.pod == "job-1-0" && hello.secret == "a-token" ? Ok() : Error{Code::kForbidden, "another pod"});
    EXPECT_EQ(::write(heard.write.get(), "x", 1), 1);
  };
  auto server = rendezvous::Server::Start(options, {});
  ASSERT_TRUE(server.ok()) << server.error().message;
  rendezvous::CoordinatorOptions job;
  job.job = "rm/job";
  (*server)->AddJob(job);
  NameServer names;

  TempFolder folder;
  const std::string root = folder.File("root");
  ASSERT_TRUE(MakeFolder(root + "/etc").ok());
  ASSERT_TRUE(MakeFolder(root + "/proc").ok());
  ASSERT_TRUE(WriteFileAtomic(root + "/etc/resolv.conf",
                              "search job.svc.cluster.test svc.cluster.test cluster.test\n"
                              "nameserver 127.0.0.1\noptions ndots:5\n")
                  .ok());
  ASSERT_TRUE(WriteFileAtomic(root + "/ca.crt", authority.cert_pem).ok());
  ASSERT_TRUE(WriteFileAtomic(root + "/token", "a-token").ok());
  ASSERT_EQ(Execute({AGENT_UNDER_TEST, "install", root + "/agent"}), 0);

  const std::string coordinator =
      "RINGMASTER_COORDINATOR=" + std::string(kHost) + ":" + std::to_string((*server)->port());
  const std::string log = folder.File("log");
  const pid_t pid = ::fork();
  if (pid == 0) {
    const Fd output(::open(log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ::dup2(output.get(), STDOUT_FILENO);
    ::dup2(output.get(), STDERR_FILENO);
    const char* const argv[] = {"/agent", nullptr};
    const char* const environment[] = {"RINGMASTER_JOB=rm/job",
                                       "RINGMASTER_POD=job-1-0",
                                       coordinator.c_str(),
                                       "RINGMASTER_CA_FILE=/ca.crt",
                                       "RINGMASTER_SECRET_FILE=/token",
                                       "RINGMASTER_JOB_FILE=/token",
                                       "RINGMASTER_TRAINER=/agent install /copy",
                                       nullptr};
    // The mounts are only in this child's namespace, so that the parent can remove the folder.
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("/proc", (root + "/proc").c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
      ::_exit(126);
    if (::chroot(root.c_str()) == 0 && ::chdir("/") == 0)
      ::execve(argv[0], const_cast<char* const*>(argv), const_cast<char* const*>(environment));
    ::_exit(127);
  }
  EXPECT_TRUE(WaitReadable(heard.read.get())) << ReadFile(log).value();
  EXPECT_TRUE(Eventually([&] { return (*server)->connected() == 1; })) << ReadFile(log).value();
  EXPECT_GE(names.refused(), 1) << "the search list was not used";
  const int64_t rss = RssKib(pid);
  EXPECT_LE(rss, kMaxRssKib);
  std::printf("RSS with TLS: %lld KiB\n", static_cast<long long>(rss));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace ringmaster::agent
