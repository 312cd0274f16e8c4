// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/mpi_rsh.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "base/file.h"
#include "base/time.h"
#include "worker/agent/mpi/mpi_channel.h"
#include "worker/agent/mpi/mpi_files.h"
#include "worker/agent/mpi/mpi_links.h"
#include "worker/agent/net/resolver.h"
#include "worker/agent/shell/signals.h"

namespace ringmaster::agent {
namespace {

constexpr int kOwnFailure = 255;  // as of ssh
// The pods of an incarnation start within moments.
constexpr Duration kConnectLimit = seconds(60);
constexpr int kConnectMs = 5000;  // for one attempt
constexpr int kPauseMs = 50;      // between attempts
// Of ssh, with a value.
constexpr std::string_view kValued = "BbcDEeFIiJLlmOopQRSWw";

Result<Fd> ConnectOnce(const SocketAddress& address) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError("socket", errno);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    if (errno != EINPROGRESS) return ErrnoError("connect", errno);
    pollfd wait = {fd.get(), POLLOUT, 0};
    if (::poll(&wait, 1, kConnectMs) <= 0) return Error{Code::kUnavailable, "connect: no answer"};
    int why = 0;
    socklen_t size = sizeof why;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &why, &size) != 0) why = errno;
    if (why != 0) return ErrnoError("connect", why);
  }
  return fd;
}

Result<Fd> Connect(const MpiPeer& peer) {
  Resolver resolver;
  resolver.Start(peer.host, peer.port);
  std::optional<Result<std::vector<SocketAddress>>> found;
  while (!found) {
    pollfd wait = {resolver.fd(), POLLIN, 0};
    ::poll(&wait, 1, 1000);
    found = resolver.Advance();
  }
  RM_ASSIGN(const std::vector<SocketAddress> addresses, std::move(*found));
  if (addresses.empty()) return Error{Code::kUnavailable, "no address"};
  const Time limit = Now() + kConnectLimit;
  while (true) {
    Result<Fd> fd = ConnectOnce(addresses.front());
    if (fd.ok() || Now() >= limit) return fd;
    ::poll(nullptr, 0, kPauseMs);
  }
}

// The relay between this process and the remote command.
class Relay {
 public:
  explicit Relay(std::unique_ptr<ByteChannel> bytes) : channel_(std::move(bytes)) {}

  Result<int> Run(const std::string& command, int signals) {
    while (true) {
      RM_ASSIGN(const bool secure, channel_.Handshake());
      if (secure) break;
      pollfd wait = {channel_.fd(), POLLIN, 0};
      if (::poll(&wait, 1, static_cast<int>(ToMs(kConnectLimit))) == 0)
        return Error{Code::kUnavailable, "TLS handshake: no answer"};
    }
    channel_.Queue(MpiChannel::Type::kCommand, command);
    bool input = true;
    while (true) {
      RM_TRY(channel_.Flush());
      const bool pending = channel_.unsent() > 0;
      const bool full = channel_.unsent() >= MpiChannel::kMuchUnsent;
      std::array<pollfd, 3> polled = {
          pollfd{channel_.fd(), static_cast<short>(pending ? POLLIN | POLLOUT : POLLIN), 0},
          pollfd{signals, POLLIN, 0}, pollfd{input && !full ? STDIN_FILENO : -1, POLLIN, 0}};
      if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return ErrnoError("poll", errno);
      if (polled[1].revents != 0) ForwardSignals(signals);
      if (polled[2].revents != 0) input = ForwardInput();
      if ((polled[0].revents & ~POLLOUT) == 0) continue;
      const Status received = channel_.Receive();
      while (true) {
        RM_ASSIGN(const std::optional<MpiChannel::Frame> frame, channel_.Next());
        if (!frame) break;
        if (const std::optional<int> code = Handle(*frame)) return *code;
      }
      if (!received.ok()) return received.error();
    }
  }

 private:
  void ForwardSignals(int signals) {
    signalfd_siginfo info = {};
    while (::read(signals, &info, sizeof info) == sizeof info)
      channel_.Queue(MpiChannel::Type::kSignal, std::to_string(info.ssi_signo));
  }

  bool ForwardInput() {
    std::array<char, 16 << 10> chunk;
    const ssize_t got = ::read(STDIN_FILENO, chunk.data(), chunk.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    channel_.Queue(MpiChannel::Type::kInput, {chunk.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))});
    return got > 0;
  }

  static void Write(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t put = ::write(fd, bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && errno == EAGAIN) {
        pollfd wait = {fd, POLLOUT, 0};
        ::poll(&wait, 1, 1000);
        continue;
      }
      if (put <= 0) return;  // its reader is gone
      bytes.remove_prefix(static_cast<size_t>(put));
    }
  }

  static std::optional<int> Handle(const MpiChannel::Frame& frame) {
    if (frame.type == MpiChannel::Type::kOutput) Write(STDOUT_FILENO, frame.payload);
    if (frame.type == MpiChannel::Type::kErrors) Write(STDERR_FILENO, frame.payload);
    if (frame.type != MpiChannel::Type::kExit) return std::nullopt;
    int code = kOwnFailure;
    std::from_chars(frame.payload.data(), frame.payload.data() + frame.payload.size(), code);
    return code;
  }

  MpiChannel channel_;
};

int Refuse(const std::string& why) {
  std::fprintf(stderr, "ringmaster rsh: %s\n", why.c_str());
  return kOwnFailure;
}

}  // namespace

Result<RshCommand> ParseRsh(const std::vector<std::string>& words) {
  RshCommand out;
  size_t i = 0;
  const auto skip_options = [&] {
    for (; i < words.size() && words[i].size() > 1 && words[i][0] == '-'; ++i) {
      // `-l USER`, `-lUSER`, or letters without a value, such as `-qx`.
      const size_t valued = words[i].find_first_of(kValued, 1);
      if (valued != std::string::npos && valued + 1 == words[i].size()) ++i;
    }
  };
  skip_options();
  if (i < words.size()) out.host = words[i].substr(words[i].find('@') + 1);
  ++i;
  skip_options();
  if (i >= words.size())
    return Error{Code::kInvalid, "usage: ringmaster-agent rsh [OPTIONS OF SSH] HOST COMMAND..."};
  for (; i < words.size(); ++i) out.command += (out.command.empty() ? "" : " ") + words[i];
  if (out.command.size() > MpiChannel::kMaxPayload)
    return Error{Code::kInvalid, fmt::format("the command has more than {} bytes", MpiChannel::kMaxPayload)};
  return out;
}

int RunRsh(const std::vector<std::string>& words) {
  sigset_t mask;
  ::sigemptyset(&mask);
  for (const int signal : {SIGTERM, SIGINT}) ::sigaddset(&mask, signal);
  AddPassedSignals(mask);
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
  const Fd signals(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  ::signal(SIGPIPE, SIG_IGN);

  const Result<RshCommand> command = ParseRsh(words);
  if (!command.ok()) return Refuse(command.error().message);
  const char* const folder = std::getenv(kMpiFolderVariable);
  if (folder == nullptr) return Refuse("this is not a pod of a job of framework mpi or horovod");
  const Result<std::vector<MpiPeer>> peers = ReadMpiPeers(folder);
  if (!peers.ok()) return Refuse(peers.error().message);
  const Result<MpiPeer> peer = FindMpiPeer(*peers, command->host);
  if (!peer.ok()) return Refuse(peer.error().message);
  Result<Fd> fd = Connect(*peer);
  if (!fd.ok())
    return Refuse(fmt::format("cannot reach {} at {} port {}: {}", peer->pod, peer->host, peer->port,
                              fd.error().message));
  const int on = 1;
  ::setsockopt(fd->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd->get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  Result<std::unique_ptr<ByteChannel>> channel =
      MakeSharedKeyChannel(std::move(fd).value(), peer->key, false);
  if (!channel.ok()) return Refuse(channel.error().message);
  Relay relay(std::move(channel).value());
  const Result<int> code = relay.Run(command->command, signals.get());
  if (code.ok()) return *code;
  return Refuse(fmt::format("{}: {}", peer->pod, code.error().message));
}

int RunSsh(const std::vector<std::string>& words) {
  const std::vector<std::string> arguments(words.begin() + 1, words.end());
  const Result<RshCommand> command = ParseRsh(arguments);
  const Result<MpiPlace> place = FindMpiPlace();
  if (command.ok() && place.ok() && FindMpiPeer(place->peers, command->host).ok()) return RunRsh(arguments);
  const Result<std::string> real = FindBehindLinks(words[0]);
  return real.ok() ? ReplaceProcess(*real, words) : RunRsh(arguments);
}

}  // namespace ringmaster::agent
