// SPDX-License-Identifier: Apache-2.0

// A trainer for tests: uses the agent's channel and the shared page like a real trainer, and misbehaves on
// request.
//   fake_trainer BEHAVIOUR [NUMBER]
// With a "-first" behaviour only the first incarnation misbehaves, so that tests observe the recovery, too.
// The address in its Join is its pid.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/log.h"
#include "rendezvous/codec.h"
#include "worker/agent/trainer/trainer_page.h"

namespace {

using namespace ringmaster;
using agent::Activity;

int ChannelFd() { return std::atoi(std::getenv("RINGMASTER_CHANNEL_FD")); }
std::string MemberId() { return std::getenv("RINGMASTER_MEMBER"); }
bool IsFirst() { return MemberId().ends_with(".1"); }

void Say(const rendezvous::Message& message) {
  const std::string frame = rendezvous::Encode(message);
  if (::send(ChannelFd(), frame.data(), frame.size(), MSG_NOSIGNAL) < 0) std::_Exit(1);
}

[[noreturn]] void WaitForSignals() {
  while (true) ::pause();
}

void AwaitOrder() {
  char byte = 0;
  if (::recv(ChannelFd(), &byte, 1, MSG_PEEK) != 1) std::_Exit(1);
}

// Prints the pods of the members in the order of the ring.
void PrintRing(const rendezvous::NewGeneration& order) {
  std::string line = "ring:";
  for (const rendezvous::Member& member : order.members) line += " " + member.pod;
  std::puts(line.c_str());
  std::fflush(stdout);
}

// Answers orders until Exit, or until the agent closes the channel.
int Serve(bool prints_ring) {
  rendezvous::Decoder decoder;
  char chunk[4096];
  while (true) {
    const ssize_t got = ::read(ChannelFd(), chunk, sizeof chunk);
    if (got <= 0) return 1;
    decoder.Feed({chunk, static_cast<size_t>(got)});
    while (true) {
      auto message = decoder.Next();
      if (!message.ok()) return 1;
      if (!message.value()) break;
      if (const auto* prepare = std::get_if<rendezvous::Prepare>(&*message.value())) {
        Say(rendezvous::MemberStatus{prepare->generation, MemberId(), false, 0, false, 0, 0});
      } else if (const auto* order = std::get_if<rendezvous::NewGeneration>(&*message.value())) {
        if (prints_ring) PrintRing(*order);
      } else if (std::holds_alternative<rendezvous::Exit>(*message.value())) {
        return 0;
      }
    }
  }
}

void Touch(std::vector<char>* ballast, size_t mebibytes) {
  ballast->resize(mebibytes << 20);
  for (size_t at = 0; at < ballast->size(); at += 4096) (*ballast)[at] = 1;
}

// Starts a grandchild whose parent exits: the agent must reap it.
void LeaveOrphan() {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::fork() == 0) ::_exit(0);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
}

void PrintLines(int count) {
  for (int i = 0; i < count; ++i) std::printf("line %d of %d\n", i, count);
  std::fflush(stdout);
}

void PrintOddBytes() {
  std::string odd = "binary \x01\xff\xfe end\n";
  odd.insert(8, 1, '\0');
  odd += std::string(100'000, 'x') + "\n";
  odd += "no newline at the end";
  std::fwrite(odd.data(), 1, odd.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string behaviour = argc > 1 ? argv[1] : "idle";
  const int number = argc > 2 ? std::atoi(argv[2]) : 0;
  if (behaviour == "no-slot-first" && IsFirst()) WaitForSignals();
  auto page = agent::TrainerPage::Attach(std::atoi(std::getenv("RINGMASTER_SLOT_FD")));
  if (!page.ok()) {
    std::fprintf(stderr, "%s\n", page.error().message.c_str());
    return 70;
  }
  if (behaviour == "exit") {
    std::fprintf(stderr, "cannot read /data/corpus\nno such folder");
    return number;
  }
  if (behaviour == "fatal") {
    Say(rendezvous::Fatal{64, "vocabulary mismatch"});
    return 64;
  }
  std::vector<char> ballast;
  if (behaviour == "ballast") Touch(&ballast, static_cast<size_t>(number));
  if (behaviour == "ignore-signals") {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::signal(signal, SIG_IGN);
  }
  Say(rendezvous::Join{"", std::to_string(::getpid())});
  page->SetActivity(Activity::kWaiting);
  if (behaviour == "orphan") LeaveOrphan();
  if (behaviour.ends_with("-first") && IsFirst()) AwaitOrder();
  if (behaviour == "exit-first" && IsFirst()) {
    log::Init("trainer pod=p member=m");
    log::Error("cannot allocate 5.0 MiB");
    return number;
  }
  if (behaviour == "stop-first" && IsFirst()) ::raise(SIGSTOP);
  if (behaviour == "hang-first" && IsFirst()) {
    page->SetActivity(Activity::kComputing);
    WaitForSignals();
  }
  if (behaviour == "close-channel-first" && IsFirst()) {
    ::close(ChannelFd());
    WaitForSignals();
  }
  if (behaviour == "stubborn") WaitForSignals();
  if (behaviour == "garbage-first" && IsFirst()) {
    if (::write(ChannelFd(), "\xff\xff\xff\xff nonsense", 13) < 0) return 1;
    WaitForSignals();
  }
  if (behaviour == "lines") {
    PrintLines(number);
    rendezvous::Progress progress;
    progress.total_steps = 1;
    progress.note = "printed";
    progress.transport = "none";
    Say(progress);
  }
  if (behaviour == "odd-bytes") {
    PrintOddBytes();
    return 0;
  }
  const int code = Serve(behaviour == "ring");
  if (behaviour == "stop-after-exit") ::raise(SIGSTOP);
  return code;
}
