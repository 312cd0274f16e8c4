// SPDX-License-Identifier: Apache-2.0

// The pods of an MPIJob: its launcher becomes the command of the workers, of which the first runs it. A
// launcher whose pod has another image or further settings becomes the role launcher, and so does one that
// looks for hosts while it runs. A command with horovodrun makes it a job of framework horovod.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>
#include <utility>

#include "cli/convert/convert.h"

namespace ringmaster::cli::convert {
namespace {

// Where the MPI operator mounts the list of hosts.
constexpr std::string_view kHostsFolder = "/etc/mpi/";
constexpr std::array<std::string_view, 7> kHostOptions = {
    "--hostfile",        "-hostfile", "--machinefile", "-machinefile", "--default-hostfile",
    "-default-hostfile", "-f"};
constexpr std::array<std::string_view, 5> kCountOptions = {"-n", "-np", "--n", "--np", "--num-proc"};
constexpr std::array<std::string_view, 2> kMinimumOptions = {"--min-np", "--min-num-proc"};
constexpr std::array<std::string_view, 2> kMaximumOptions = {"--max-np", "--max-num-proc"};
constexpr std::string_view kHorovodRun = "horovodrun";
constexpr std::array<std::string_view, 4> kLaunchers = {"mpirun", "mpiexec", "mpiexec.hydra", kHorovodRun};
constexpr std::string_view kDiscoverHosts = "/etc/mpi/discover_hosts.sh";
constexpr std::array<std::string_view, 1> kDiscoveryOptions = {"--host-discovery-script"};

template <size_t n>
bool Has(const std::array<std::string_view, n>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

Json* FirstContainer(Json& pod_template) {
  if (!pod_template.is_object() || !pod_template.contains("spec")) return nullptr;
  Json& spec = pod_template["spec"];
  if (!spec.is_object() || !spec.contains("containers")) return nullptr;
  Json& list = spec["containers"];
  return list.is_array() && !list.empty() && list.front().is_object() ? &list.front() : nullptr;
}

std::string Word(const Json& words, size_t at) {
  return at < words.size() && words[at].is_string() ? words[at].get<std::string>() : std::string();
}

bool HasCommand(const Json& container) {
  return container.contains("command") && container["command"].is_array() && !container["command"].empty();
}

// Removes the checks of a TCP port, since no program of a worker opens it. Returns their names.
std::vector<std::string> RemovePortProbes(Json& container) {
  std::vector<std::string> removed;
  for (const char* probe : {"livenessProbe", "readinessProbe", "startupProbe"}) {
    if (json::Child(container, probe).contains("tcpSocket")) {
      container.erase(probe);
      removed.emplace_back(probe);
    }
  }
  return removed;
}

// Removes the option with the list of hosts that the MPI operator mounts. Returns what was removed.
std::vector<std::string> RemoveHosts(Json& words) {
  std::vector<std::string> removed;
  Json kept = Json::array();
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word = Word(words, i);
    const size_t equals = std::min(word.find('='), word.size());
    const bool discovers = Has(kDiscoveryOptions, word) && Word(words, i + 1) == kDiscoverHosts;
    if (discovers || (Has(kHostOptions, word) && Word(words, i + 1).starts_with(kHostsFolder))) {
      removed.push_back(word);
      removed.push_back(Word(words, ++i));
    } else if (equals < word.size() && Has(kHostOptions, std::string_view(word).substr(0, equals)) &&
               word.compare(equals + 1, kHostsFolder.size(), kHostsFolder) == 0) {
      removed.push_back(word);
    } else {
      kept.push_back(words[i]);
    }
  }
  words = std::move(kept);
  return removed;
}

// Returns the number that follows one of these options; 0: none does.
template <size_t n>
int64_t NumberAfter(const std::array<std::string_view, n>& options, const Json& words) {
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (!words[i].is_string() || !words[i + 1].is_string()) continue;
    const std::string& number = words[i + 1].get_ref<const std::string&>();
    int64_t ranks = 0;
    if (!Has(options, words[i].get_ref<const std::string&>())) continue;
    std::from_chars(number.data(), number.data() + number.size(), ranks);
    return ranks;
  }
  return 0;
}

class MpiPods {
 public:
  MpiPods(Source& source, const MpiJobPods& pods, Json& job) : source_(source), pods_(pods), job_(job) {}

  void Convert() {
    Json launcher_template = pods_.launcher;
    Json worker_template = pods_.worker;
    Json* launcher = FirstContainer(launcher_template);
    Json* worker = FirstContainer(worker_template);
    if (launcher == nullptr) return source_.Refuse(pods_.launcher_path, "must have spec.containers");
    UseArguments(*launcher);
    if (!HasCommand(*launcher))
      return source_.Refuse(pods_.command_path,
                            "must have the command that starts mpirun: the agent starts it");
    if (worker == nullptr) return source_.Refuse(pods_.worker_path, "must have spec.containers");
    if (Mentions(*launcher, kHorovodRun)) job_["spec"]["framework"] = "horovod";
    elastic_ = Mentions(*launcher, kHorovodRun) && Mentions(*launcher, kDiscoverHosts);
    if (elastic_ && !pods_.apart)
      return source_.Refuse(
          pods_.command_path,
          "the command looks for hosts while it runs, so the launcher needs a pod apart from "
          "the workers");
    const std::vector<std::string> own = OfLauncherOnly(launcher_template, worker_template);
    if (pods_.apart && (elastic_ || !own.empty()))
      return MakeRole(std::move(launcher_template), std::move(worker_template));
    TakeCommand(*launcher, *worker);
    TakeEnvironment(*launcher, *worker);
    if (!own.empty())
      source_.Note(pods_.launcher_path, fmt::format("the launcher runs in the first worker, without its {}",
                                                    fmt::join(own, ", ")));
    UseTemplate(source_, {pods_.worker_path, "", pods_.launcher_path}, std::move(worker_template), "", "",
                job_);
  }

 private:
  // Makes a command of arguments that start with mpirun, as for the images of the MPI operator.
  void UseArguments(Json& launcher) {
    const Json& arguments = json::Items(launcher, "args");
    const std::string first = Word(arguments, 0);
    if (HasCommand(launcher) || !Has(kLaunchers, std::string_view(first).substr(first.rfind('/') + 1)))
      return;
    source_.Note(
        pods_.command_path,
        fmt::format("args start {}, so they are the command, and the ENTRYPOINT of the image does not "
                    "run; put it in front of {} if that needs it",
                    first, first));
    launcher["command"] = arguments;
    launcher.erase("args");
  }

  // Whether a word of the command contains the text.
  static bool Mentions(const Json& container, std::string_view text) {
    for (const char* member : {"command", "args"}) {
      for (const Json& word : json::Items(container, member))
        if (word.is_string() && word.get_ref<const std::string&>().find(text) != std::string::npos)
          return true;
    }
    return false;
  }

  // Horovod counts ranks, and a TrainingJob workers.
  void TakeLimits(int64_t ranks, int64_t minimum, int64_t maximum) {
    const auto workers = [&](int64_t count) { return (count + pods_.slots - 1) / pods_.slots; };
    Json& own = job_["spec"]["workers"];
    const int64_t least = minimum > 0 ? minimum : ranks;
    own["min"] = std::clamp<int64_t>(workers(least), 1, pods_.replicas);
    own["max"] = std::max(workers(maximum), pods_.replicas);
  }

  // The launcher keeps its pod, and the workers only serve it.
  void MakeRole(Json launcher_template, Json worker_template) {
    Json& spec = job_["spec"];
    AdaptCommand(*FirstContainer(launcher_template));
    UseTemplate(source_, {pods_.launcher_path, "", pods_.launcher_path}, std::move(launcher_template), "", "",
                job_);
    const Json role = {{"name", "launcher"}, {"template", std::move(spec["workers"]["template"])}};
    Json* worker = PrepareTemplate(source_, {pods_.worker_path, "", ""}, worker_template);
    if (worker == nullptr) return;
    LeaveOutCommand(*worker);
    spec["workers"]["template"] = std::move(worker_template);
    spec["roles"] = Json::array({role});
  }

  void TakeCommand(const Json& launcher, Json& worker) {
    if (pods_.worker_path != pods_.launcher_path) LeaveOutCommand(worker);
    for (const char* member : {"command", "args", "workingDir"}) {
      if (launcher.contains(member)) worker[member] = launcher[member];
    }
    AdaptCommand(worker);
  }

  void LeaveOutCommand(Json& worker) {
    if (worker.contains("command") || worker.contains("args"))
      source_.Note(pods_.worker_path + ".spec.containers",
                   "the command of the workers was left out: agents take the place of sshd");
    worker.erase("command");
    worker.erase("args");
    if (const std::vector<std::string> probes = RemovePortProbes(worker); !probes.empty())
      source_.Note(pods_.worker_path + ".spec.containers",
                   fmt::format("the {} of the workers was left out: there is no sshd to connect to",
                               fmt::join(probes, ", ")));
  }

  // Removes from the launcher's command what the agent gives it.
  void AdaptCommand(Json& container) {
    std::vector<std::string> removed;
    int64_t ranks = 0, minimum = 0, maximum = 0;
    for (const char* member : {"command", "args"}) {
      if (!container.contains(member) || !container[member].is_array()) continue;
      for (std::string& word : RemoveHosts(container[member])) removed.push_back(std::move(word));
      ranks = std::max(ranks, NumberAfter(kCountOptions, container[member]));
      minimum = std::max(minimum, NumberAfter(kMinimumOptions, container[member]));
      maximum = std::max(maximum, NumberAfter(kMaximumOptions, container[member]));
      CheckHosts(container[member]);
    }
    const std::string& path = pods_.command_path;
    if (!removed.empty())
      source_.Note(path, fmt::format("removed {}: the agent gives the launcher the hosts of each start",
                                     fmt::join(removed, " ")));
    if (elastic_) return TakeLimits(ranks, minimum, maximum);
    const int64_t places = pods_.replicas * pods_.slots;
    if (ranks > 0 && ranks != places)
      source_.Note(path,
                   fmt::format("the command starts {} ranks, and the workers have {} slots: each worker "
                               "must run a rank",
                               ranks, places));
  }

  // What the MPI operator mounts in /etc/mpi does not exist.
  void CheckHosts(const Json& words) {
    for (const Json& item : words) {
      const std::string word = item.is_string() ? item.get<std::string>() : std::string();
      if (word.find(kDiscoverHosts) != word.npos) {
        source_.Refuse(
            pods_.command_path,
            fmt::format("the command looks for hosts by {}, which does not exist here: {}", kDiscoverHosts,
                        elastic_ ? "leave out the option, and the agent adds its own"
                                 : "a job of MPI has a fixed size; start its ranks with mpirun"));
      } else if (word.find(kHostsFolder) != word.npos) {
        source_.Note(
            pods_.command_path,
            fmt::format("the command names a file in {}, which does not exist here: remove it, and its "
                        "option; the agent gives the launcher the hosts of each start",
                        kHostsFolder));
      }
    }
  }

  // The worker's variables win.
  void TakeEnvironment(const Json& launcher, Json& worker) {
    for (const Json& variable : json::Items(launcher, "env")) {
      Json& own = worker["env"];
      if (!own.is_array()) own = Json::array();
      const bool known = std::any_of(own.begin(), own.end(), [&](const Json& other) {
        return json::Text(other, "name") == json::Text(variable, "name");
      });
      if (!known) own.push_back(variable);
    }
  }

  // Returns what only the launcher's pod has.
  static std::vector<std::string> OfLauncherOnly(Json& launcher_template, Json& worker_template) {
    std::vector<std::string> own;
    const auto collect = [&](const Json& theirs, const Json& ours, const std::string& prefix,
                             std::initializer_list<std::string_view> taken) {
      if (!theirs.is_object()) return;
      for (const auto& [key, value] : theirs.items()) {
        const bool known = std::find(taken.begin(), taken.end(), key) != taken.end();
        if (!known && (!ours.is_object() || !ours.contains(key) || ours[key] != value))
          own.push_back(prefix + key);
      }
    };
    collect(launcher_template["spec"], worker_template["spec"], "spec.", {"containers", "restartPolicy"});
    collect(*FirstContainer(launcher_template), *FirstContainer(worker_template), "spec.containers[0].",
            {"name", "command", "args", "workingDir", "env", "resources", "imagePullPolicy"});
    return own;
  }

  Source& source_;
  const MpiJobPods& pods_;
  Json& job_;
  bool elastic_ = false;  // horovodrun looks for hosts while it runs
};

}  // namespace

std::string TakeMpi(Source& source, const std::string& path) {
  const std::string implementation = source.TakeText(path).value_or("");
  std::string name = implementation.empty() ? "openmpi" : implementation;
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name != "openmpi" && name != "mpich" && name != "intel")
    source.Refuse(path, fmt::format("must be OpenMPI, MPICH or Intel (got \"{}\")", implementation));
  return name;
}

void ConvertMpiPods(Source& source, const MpiJobPods& pods, Json& job) {
  MpiPods(source, pods, job).Convert();
}

}  // namespace ringmaster::cli::convert
