// SPDX-License-Identifier: Apache-2.0

// The parts of framework mpi that need no MPI: files, command lines, frames, and who may connect.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "tests/temp_folder.h"
#include "worker/agent/mpi/mpi_channel.h"
#include "worker/agent/mpi/mpi_files.h"
#include "worker/agent/mpi/mpi_hydra.h"
#include "worker/agent/mpi/mpi_rsh.h"

namespace ringmaster::agent {
namespace {

rendezvous::StartProgram TwoPods() {
  return {7,
          {{"a", "job-1-0", "10.0.0.1:4001", "", "key-a"}, {"b", "job-1-1", "[fd00::2]:4002", "", "key-b"}}};
}

MpiSetup SetupIn(const std::string& folder, const char* implementation = "openmpi",
                 const char* framework = "mpi") {
  return {framework, implementation, 2, "/agent", folder, "job-1-0"};
}

TEST(MpiFiles, NameEveryPodWithItsAddressAndKey) {
  const TempFolder folder;
  ASSERT_TRUE(WriteMpiFiles(SetupIn(folder.path()), TwoPods()).ok());
  const Result<std::vector<MpiPeer>> peers = ReadMpiPeers(folder.path());
  ASSERT_TRUE(peers.ok());
  ASSERT_EQ(peers->size(), 2u);
  const Result<MpiPeer> peer = FindMpiPeer(*peers, "job-1-1");
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->host, "fd00::2");
  EXPECT_EQ(peer->port, "4002");
  EXPECT_EQ(peer->key, "key-b");
  const Result<MpiPeer> stranger = FindMpiPeer(*peers, "job-2-1");
  ASSERT_FALSE(stranger.ok());
  EXPECT_EQ(stranger.error().message,
            "host job-2-1 is not a worker of this job, which has: job-1-0, job-1-1");
}

TEST(MpiFiles, HostsAreInTheFormOfTheImplementation) {
  EXPECT_EQ(MpiHosts(TwoPods().members, 2, true), "job-1-0 slots=2\njob-1-1 slots=2\n");
  EXPECT_EQ(MpiHosts(TwoPods().members, 2, false), "job-1-0:2\njob-1-1:2\n");
}

TEST(MpiFiles, ALauncherApartHasNoRanks) {
  rendezvous::StartProgram order = TwoPods();
  EXPECT_EQ(LauncherAmong(order.members), 0);
  order.members.push_back({"c", "job-1-launcher-0", "10.0.0.3:4003", "launcher", "key-c"});
  EXPECT_EQ(LauncherAmong(order.members), 2);
  EXPECT_EQ(MpiHosts(order.members, 2, false), "job-1-0:2\njob-1-1:2\n");
}

TEST(MpiFiles, AWorkerThatJoinsLaterIsAnotherHostEachTime) {
  const TempFolder folder;
  rendezvous::StartProgram order = TwoPods();
  order.members[1].joined = 3;
  order.members[1].key.clear();
  ASSERT_TRUE(WriteMpiMembers(SetupIn(folder.path(), kGloo, "horovod"), order.members).ok());
  EXPECT_EQ(ReadFile(folder.path() + kHorovodHosts).value(), "job-1-0 slots=2\njob-1-1.3 slots=2\n");
  const Result<std::vector<MpiPeer>> peers = ReadMpiPeers(folder.path());
  ASSERT_TRUE(peers.ok());
  EXPECT_EQ(FindMpiPeer(*peers, "job-1-1.3")->port, "4002");
  EXPECT_EQ(FindMpiPeer(*peers, "job-1-1.3")->key, "") << "no public word takes the place of a key";
  EXPECT_FALSE(FindMpiPeer(*peers, "job-1-1").ok());
}

TEST(MpiFiles, TheUsersDefaultsStay) {
  const auto has = [](const std::vector<std::string>& list, const std::string& start) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& v) { return v.starts_with(start); });
  };
  const auto none = [](const char*) { return false; };
  const auto all = [](const char*) { return true; };
  const MpiSetup setup = SetupIn("/f");
  EXPECT_TRUE(has(MpiVariables(setup, true, "/bin", none), "OMPI_MCA_btl_tcp_if_include=lo"));
  EXPECT_FALSE(has(MpiVariables(setup, false, "/bin", none), "OMPI_MCA_btl_tcp_if_include="));
  EXPECT_FALSE(has(MpiVariables(setup, true, "/bin", all), "OMPI_MCA_btl_tcp_if_include="));
  EXPECT_TRUE(has(MpiVariables(setup, true, "/bin", all), "OMPI_MCA_plm_rsh_agent="));
}

TEST(MpiFiles, NamesLeadToTheAgentWhereALauncherNeedsThem) {
  const auto links = [](const char* implementation, const char* framework) {
    const TempFolder folder;
    EXPECT_TRUE(WriteMpiFiles(SetupIn(folder.path(), implementation, framework), TwoPods()).ok());
    std::set<std::string> names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() + kMpiBin, none))
      names.insert(entry.path().filename());
    return names;
  };
  const std::set<std::string> hydra = {"mpiexec", "mpiexec.hydra", "mpiexec.mpich", "mpirun", "mpirun.mpich"};
  EXPECT_EQ(links("openmpi", "mpi"), std::set<std::string>{});
  EXPECT_EQ(links("mpich", "mpi"), hydra);
  const std::set<std::string> horovod = {"horovodrun", "ringmaster", "ssh"};
  EXPECT_EQ(links(kGloo, "horovod"), horovod);
  EXPECT_EQ(links("openmpi", "horovod"), horovod);
  std::set<std::string> both = horovod;
  both.insert(hydra.begin(), hydra.end());
  EXPECT_EQ(links("intel", "horovod"), both);
}

// The daemons of Open MPI get the settings of its launcher, and end when this program does not exist in their
// pod: it must not be named by the folder of an incarnation, which every pod has for itself.
TEST(MpiFiles, DaemonsFindTheAgentInEveryPod) {
  const std::vector<std::string> list =
      MpiVariables(SetupIn("/private"), false, "/bin", [](const char*) { return false; });
  for (const char* variable : {"OMPI_MCA_plm_rsh_agent=/agent rsh", "PRTE_MCA_plm_ssh_agent=/agent rsh"})
    EXPECT_EQ(std::count(list.begin(), list.end(), variable), 1) << variable;
}

TEST(Rsh, TakesTheArgumentsOfSsh) {
  const auto parse = [](std::vector<std::string> words) {
    const Result<RshCommand> parsed = ParseRsh(words);
    return parsed.ok() ? parsed->host + "|" + parsed->command : "refused";
  };
  EXPECT_EQ(parse({"host", "orted", "-mca", "ess \"env\""}), "host|orted -mca ess \"env\"");
  EXPECT_EQ(parse({"-x", "-q", "-l", "root", "-oBatchMode=yes", "-o", "Port=1", "-p22", "host", "a"}),
            "host|a");
  EXPECT_EQ(parse({"-xl", "root", "user@host", "a", "-l"}), "host|a -l");
  // As horovodrun calls it.
  EXPECT_EQ(parse({"-o", "PasswordAuthentication=no", "-o", "StrictHostKeyChecking=no", "host", "-o",
                   "ConnectTimeout=10", "true"}),
            "host|true");
  EXPECT_EQ(parse({"host"}), "refused");
  EXPECT_EQ(parse({"-l"}), "refused");
  EXPECT_EQ(parse({}), "refused");
}

// Other pods do not know its name, to which the daemons of Intel MPI would connect.
TEST(Hydra, IntelMpiGetsTheInterfaceOfThePod) {
  EXPECT_EQ(HydraInterface("intel", "127.0.0.1"), "lo");
  EXPECT_EQ(HydraInterface("intel", "192.0.2.77"), "");
  EXPECT_EQ(HydraInterface("intel", "::1"), "");
  EXPECT_EQ(HydraInterface("mpich", "127.0.0.1"), "");
  EXPECT_EQ(HydraInterface(nullptr, "127.0.0.1"), "");
}

TEST(Hydra, ItsRanksStartUnderTheWrapper) {
  const auto wrap = [](std::vector<std::string> arguments) {
    std::string text;
    const auto is_program = [](const std::string& word) { return word == "./a"; };
    for (const std::string& word : WrapHydraRanks(arguments, "/agent", is_program)) text += word + " ";
    return text;
  };
  EXPECT_EQ(wrap({"./a", "-n", "x"}), "/agent rank ./a -n x ");
  EXPECT_EQ(wrap({"-n", "2", "-genv", "A", "b", "-l", "python", "t.py"}),
            "-n 2 -genv A b -l /agent rank python t.py ");
  EXPECT_EQ(wrap({"-np=2", "--ppn", "1", "./a", ":", "-n", "1", "./b", "c"}),
            "-np=2 --ppn 1 /agent rank ./a : -n 1 /agent rank ./b c ");
  EXPECT_EQ(wrap({"-new-flag", "./a"}), "-new-flag /agent rank ./a ");
  EXPECT_EQ(wrap({"-new-option", "value", "./a"}), "-new-option value /agent rank ./a ");
  EXPECT_EQ(wrap({"/agent", "rank", "./a"}), "/agent rank ./a ") << "by a script that calls another launcher";
  EXPECT_EQ(wrap({"-n"}), "-n ");
  EXPECT_EQ(wrap({}), "");
}

struct Ends {
  std::unique_ptr<ByteChannel> client;
  std::unique_ptr<ByteChannel> server;
};

Ends Connect(const std::string& client_key, const std::string& server_key) {
  int fds[2];
  CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  return {MakeSharedKeyChannel(Fd(fds[0]), client_key, false).value(),
          MakeSharedKeyChannel(Fd(fds[1]), server_key, true).value()};
}

// Returns whether both ends agree that they are connected.
bool Shake(Ends& ends) {
  bool client = false;
  bool server = false;
  for (int i = 0; i < 10 && !(client && server); ++i) {
    if (!client) {
      const Result<bool> done = ends.client->Handshake();
      if (!done.ok()) return false;
      client = *done;
    }
    if (!server) {
      const Result<bool> done = ends.server->Handshake();
      if (!done.ok()) return false;
      server = *done;
    }
  }
  return client && server;
}

TEST(SharedKeyChannel, ConnectsOnlyWhoKnowsTheKey) {
  const std::string key(64, 'a');
  Ends right = Connect(key, key);
  EXPECT_TRUE(Shake(right));
  Ends wrong = Connect(std::string(64, 'b'), key);
  EXPECT_FALSE(Shake(wrong));
  EXPECT_FALSE(MakeSharedKeyChannel(Fd(), "", true).ok());
}

TEST(MpiChannel, CarriesFramesOfEverySize) {
  const std::string key(64, 'a');
  Ends ends = Connect(key, key);
  ASSERT_TRUE(Shake(ends));
  MpiChannel client(std::move(ends.client));
  MpiChannel server(std::move(ends.server));
  const std::string large(MpiChannel::kMaxPayload, 'x');
  client.Queue(MpiChannel::Type::kCommand, "hostname");
  client.Queue(MpiChannel::Type::kInput, "");
  client.Queue(MpiChannel::Type::kInput, large);
  std::vector<MpiChannel::Frame> frames;
  for (int i = 0; i < 1000 && frames.size() < 3; ++i) {
    ASSERT_TRUE(client.Flush().ok());
    ASSERT_TRUE(server.Receive().ok());
    while (true) {
      Result<std::optional<MpiChannel::Frame>> frame = server.Next();
      ASSERT_TRUE(frame.ok());
      if (!*frame) break;
      frames.push_back(std::move(**frame));
    }
  }
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].payload, "hostname");
  EXPECT_EQ(frames[1].type, MpiChannel::Type::kInput);
  EXPECT_EQ(frames[2].payload, large);
  EXPECT_EQ(client.unsent(), 0u);
}

TEST(MpiChannel, RefusesWhatIsNoFrame) {
  const std::string key(64, 'a');
  Ends ends = Connect(key, key);
  ASSERT_TRUE(Shake(ends));
  ASSERT_TRUE(ends.client->Send("GET / HTTP/1.1\r\n", 16).ok());
  MpiChannel server(std::move(ends.server));
  ASSERT_TRUE(server.Receive().ok());
  EXPECT_FALSE(server.Next().ok());
}

}  // namespace
}  // namespace ringmaster::agent
