// SPDX-License-Identifier: Apache-2.0

// bench_rendezvous [--jobs N] [--pods N] [--slots N] [--separate] [--seconds S]
// Serves gangs over TLS on loopback, with the clients in a separate process, and prints what the server needs
// next to the goals: memory and processor of 16,384 ranks in 2,048 pods, and the processor time of the
// formation of one gang. Exits with 1 when a goal is missed.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/pipe.h"
#include "bench/rendezvous/gang.h"
#include "operator/identity/x509.h"
#include "operator/kube/wall_time.h"
#include "rendezvous/server.h"

namespace ringmaster::bench {
namespace {

// Of the chart's default resources: the rest of the operator needs some 40 MiB, and its decisions a core's
// half.
constexpr double kMemoryGoalMib = 256;
constexpr double kCoreGoal = 0.5;
constexpr double kFormationGoalSeconds = 1;

double CpuSeconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double RssMib() {
  const Result<std::string> statm = ReadFile("/proc/self/statm", 256);
  CHECK(statm.ok(), "{}", statm.error().message);
  const size_t second = statm->find(' ') + 1;
  return static_cast<double>(std::strtol(statm->c_str() + second, nullptr, 10)) *
         static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// The client process writes a byte when a phase is complete, and waits for one before the next.
class Turns {
 public:
  void Give() const {
    const char byte = 1;
    if (::write(to.get(), &byte, 1) != 1) std::_Exit(1);
  }
  void Await() const {
    char byte = 0;
    if (::read(from.get(), &byte, 1) != 1) {
      fmt::print(stderr, "the other process has ended\n");
      std::_Exit(1);
    }
  }
  Fd to, from;
};

int RunClients(const GangOptions& options, const Turns& turns, double seconds_of_pings) {
  Gang gang(options);
  turns.Await();
  gang.Connect();
  turns.Give();
  for (int job = 0; job < options.jobs; ++job) {
    turns.Await();
    gang.Form(job);
    turns.Give();
  }
  turns.Await();
  const Duration longest =
      gang.Pause(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds_of_pings)));
  fmt::print("{:<58} {:>9.2f} s\n", "longest time between pings of the clients", ToSeconds(longest));
  std::fflush(stdout);
  turns.Give();
  turns.Await();
  return 0;
}

bool Print(const std::string& what, double result, double goal, const char* unit) {
  fmt::print("{:<58} {:>9.2f} {:<5} goal {:>7.2f}  {}\n", what, result, unit, goal,
             result <= goal ? "met" : "MISSED");
  return result <= goal;
}

int Main(int argc, char** argv) {
  GangOptions options;
  double seconds_of_pings = 15;
  CLI::App app("bench_rendezvous");
  app.add_option("--jobs", options.jobs, "number of jobs")->capture_default_str();
  app.add_option("--pods", options.pods, "pods of each job")->capture_default_str();
  app.add_option("--slots", options.slots, "trainers of each pod")->capture_default_str();
  app.add_option("--address-bytes", options.address_bytes, "of each trainer")->capture_default_str();
  app.add_option("--seconds", seconds_of_pings, "of pings and reports")->capture_default_str();
  app.add_flag("--separate", options.separate, "a connection for each trainer, as earlier agents have");
  CLI11_PARSE(app, argc, argv);
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);

  const auto authority = identity::MakeAuthority("bench", kube::WallNow(), std::chrono::hours(1));
  CHECK(authority.ok(), "{}", authority.error().message);
  const auto leaf = identity::MakeLeaf(*authority, {"127.0.0.1"}, kube::WallNow(), std::chrono::hours(1));
  CHECK(leaf.ok(), "{}", leaf.error().message);
  const std::string folder =
      (std::filesystem::temp_directory_path() / fmt::format("bench-rendezvous-{}", ::getpid())).string();
  std::filesystem::create_directory(folder);
  options.ca_file = folder + "/ca.crt";
  CHECK(WriteFileAtomic(options.ca_file, authority->cert_pem).ok());

  // The port is known after the server has started, and a fork comes before its thread: so the clients get it
  // as text.
  auto up = MakePipe();
  auto down = MakePipe();
  CHECK(up.ok() && down.ok());
  const pid_t clients = ::fork();
  CHECK(clients >= 0);
  if (clients == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Turns turns{std::move(up->write), std::move(down->read)};
    char port[16] = "";
    if (::read(turns.from.get(), port, sizeof port) != sizeof port) std::_Exit(1);
    options.port = port;
    std::_Exit(RunClients(options, turns, seconds_of_pings));
  }
  const Turns turns{std::move(down->write), std::move(up->read)};
  up->write.Reset();
  down->read.Reset();

  rendezvous::ServerOptions server_options;
  server_options.secret = "secret";
  server_options.tls_cert_pem = leaf->cert_pem;
  server_options.tls_key_pem = leaf->key_pem;
  std::atomic<int64_t> silent{0};
  rendezvous::ServerCallbacks callbacks;
  callbacks.on_report = [](const std::string&, const std::string&, const rendezvous::Report&) {};
  callbacks.on_event = [&](const std::string&, const rendezvous::EventLine& line) {
    if (line.kind == rendezvous::EventKind::kWorkerSilent) ++silent;
  };
  auto server = rendezvous::Server::Start(server_options, std::move(callbacks));
  CHECK(server.ok(), "{}", server.error().message);
  const int32_t ranks = options.pods * options.slots;
  for (int job = 0; job < options.jobs; ++job) {
    rendezvous::CoordinatorOptions coordinator;
    coordinator.job = JobName(job);
    coordinator.min = coordinator.target = coordinator.max = ranks;
    coordinator.slots = options.slots;
    (*server)->AddJob(coordinator);
  }
  char port[16] = "";
  fmt::format_to_n(port, sizeof port - 1, "{}", (*server)->port());
  CHECK(::write(turns.to.get(), port, sizeof port) == sizeof port);

  const int32_t all = options.jobs * ranks;
  const int32_t connections = options.jobs * options.pods * (options.separate ? options.slots : 1);
  fmt::print("{} ranks in {} pods of {} jobs, {} TLS connections, {} bytes of address\n", all,
             options.jobs * options.pods, options.jobs, connections, options.address_bytes);
  const double rss_before = RssMib();
  double cpu = CpuSeconds();
  Time since = Now();
  turns.Give();
  turns.Await();
  const double rss_connected = RssMib();
  fmt::print("{:<58} {:>9.2f} KiB\n", "memory of a connection",
             (rss_connected - rss_before) * 1024 / connections);
  fmt::print("{:<58} {:>9.2f} ms\n", "processor of a connection: handshake and hello",
             (CpuSeconds() - cpu) * 1e3 / connections);
  struct Formation {
    double cpu;
    double wall;
  };
  std::vector<Formation> formations;
  for (int job = 0; job < options.jobs; ++job) {
    cpu = CpuSeconds();
    since = Now();
    turns.Give();
    turns.Await();
    formations.push_back({CpuSeconds() - cpu, ToSeconds(Now() - since)});
  }
  silent = 0;  // the clients are late themselves while they read memberships
  cpu = CpuSeconds();
  since = Now();
  turns.Give();
  turns.Await();
  const double cores = (CpuSeconds() - cpu) / ToSeconds(Now() - since);
  double slowest = 0;
  double longest = 0;
  for (const Formation& formation : formations) {
    slowest = std::max(slowest, formation.cpu - cores * formation.wall);
    longest = std::max(longest, formation.wall);
  }
  fmt::print("{:<58} {:>9.2f} s\n", "formation of a job, with the clients on the same cores", longest);
  bool met = Print(fmt::format("processor of a formation of {}, without pings", ranks), slowest,
                   kFormationGoalSeconds, "s");
  met = Print("processor while all train", cores, kCoreGoal, "cores") && met;
  met = Print("memory while all train", RssMib(), kMemoryGoalMib, "MiB") && met;
  met = Print("workers taken for silent while all train", static_cast<double>(silent), 0, "") && met;
  met = Print("workers lost", static_cast<double>(all - (*server)->connected()), 0, "") && met;
  (*server)->Shutdown();
  turns.Give();
  int status = 0;
  ::waitpid(clients, &status, 0);
  std::filesystem::remove_all(folder);
  return met && status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ringmaster::bench

int main(int argc, char** argv) { return ringmaster::bench::Main(argc, argv); }
