// SPDX-License-Identifier: Apache-2.0

// Properties of every job. RINGMASTER_SEED=N runs a single seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <regex>
#include <set>

#include "api/launch.h"
#include "operator/wiring/names.h"
#include "operator/wiring/template.h"
#include "operator/wiring/tree.h"
#include "tests/sanitized.h"
#include "tests/unit/wiring/random_job.h"

namespace ringmaster::wiring {
namespace {

constexpr uint64_t kSeeds = kSanitized ? 300 : 1500;

void ForEachSeed(const std::function<void(uint64_t)>& test) {
  if (const char* one = std::getenv("RINGMASTER_SEED"); one != nullptr)
    return test(std::strtoull(one, nullptr, 10));
  for (uint64_t seed = 1; seed <= kSeeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("RINGMASTER_SEED={}", seed));
    test(seed);
  }
}

struct RenderedJob {
  explicit RenderedJob(uint64_t seed)
      : job(RandomJob(seed)),
        context(RandomContext(seed, job)),
        rank(static_cast<int32_t>(seed % static_cast<uint64_t>(job.spec.workers.replicas))),
        pod(PodOf(job, "uid-1", rank, context)),
        objects(ObjectsOf(job, "uid-1", context)),
        user(ReadTemplate(job)) {}

  const Json& worker() const {
    for (const Json& container : pod["spec"]["containers"]) {
      if (container["name"] == user.worker) return container;
    }
    ADD_FAILURE() << "no container " << user.worker;
    return pod;
  }
  // Returns a list of the template's spec; empty when there is none.
  Json OfUser(std::initializer_list<const char*> path) const {
    const Json* list = Find(user.value, path);
    return list != nullptr ? *list : Json::array();
  }
  Json OfUserContainer(const char* list) const {
    const Json* container = UserContainer(user);
    const Json* value = container != nullptr ? Find(*container, {list}) : nullptr;
    return value != nullptr ? *value : Json::array();
  }

  api::TrainingJob job;
  Context context;
  int32_t rank;
  Json pod;
  std::vector<Json> objects;
  Template user;
};

bool Has(const Json& list, const Json& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

TEST(EveryJob, NamesAndLabelsFit) {
  static const std::regex kLabel("[a-z0-9]([-a-z0-9]*[a-z0-9])?");
  ForEachSeed([](uint64_t seed) {
    const RenderedJob rendered(seed);
    std::vector<std::string> names = {rendered.pod["metadata"]["name"], rendered.pod["spec"]["hostname"]};
    if (rendered.pod["spec"].contains("subdomain")) names.push_back(rendered.pod["spec"]["subdomain"]);
    std::vector<Json> all = rendered.objects;
    all.push_back(rendered.pod);
    for (const Json& object : all) {
      names.push_back(object["metadata"]["name"]);
      for (const auto& [key, value] : object["metadata"]["labels"].items())
        EXPECT_LE(value.get<std::string>().size(), 63u) << key;
      const Json& owner = object["metadata"]["ownerReferences"][0];
      EXPECT_EQ(owner["uid"], "uid-1");
      EXPECT_EQ(owner["controller"], true);
    }
    for (const std::string& name : names) {
      EXPECT_LE(name.size(), 63u) << name;
      EXPECT_TRUE(std::regex_match(name, kLabel)) << name;
    }
    for (const Json& object : rendered.objects) {
      if (object["kind"] != "Service") continue;
      const std::string name = object["metadata"]["name"];
      EXPECT_TRUE(std::isalpha(static_cast<unsigned char>(name[0]))) << name;
    }
  });
}

TEST(EveryJob, SupportingObjectsHaveNoSecrets) {
  ForEachSeed([](uint64_t seed) {
    for (const Json& object : RenderedJob(seed).objects) {
      EXPECT_EQ(object.dump().find(kSecretText), std::string::npos) << object["kind"];
      EXPECT_NE(object["kind"], "Secret");
    }
  });
}

TEST(EveryJob, PinsMemoryOnlyWithRdma) {
  ForEachSeed([](uint64_t seed) {
    const RenderedJob rendered(seed);
    EXPECT_EQ(rendered.pod.dump().find("IPC_LOCK") != std::string::npos,
              rendered.job.spec.network.rdma.has_value());
    const Json* added = Find(rendered.worker(), {"securityContext", "capabilities", "add"});
    EXPECT_EQ(added != nullptr && Has(*added, "IPC_LOCK"), rendered.job.spec.network.rdma.has_value());
  });
}

TEST(EveryJob, TheUsersVariablesWin) {
  ForEachSeed([](uint64_t seed) {
    const RenderedJob rendered(seed);
    const Json& env = rendered.worker()["env"];
    std::set<std::string> names;
    for (const Json& variable : env) EXPECT_TRUE(names.insert(variable["name"]).second) << variable["name"];
    for (const Json& variable : rendered.OfUserContainer("env")) EXPECT_TRUE(Has(env, variable)) << variable;
    // A later source of envFrom wins: the user's come last.
    const Json theirs = rendered.OfUserContainer("envFrom");
    const Json& all = rendered.worker().contains("envFrom") ? rendered.worker()["envFrom"] : Json::array();
    for (size_t i = 0; i < theirs.size(); ++i) EXPECT_EQ(all[all.size() - theirs.size() + i], theirs[i]);
    // Of the network variables only the pod's ports are in env, which overrides envFrom.
    for (const Json& variable : env) {
      const std::string name = variable["name"];
      if (name.starts_with("NCCL_") || (name.starts_with("UCX_") && name != "UCX_TCP_PORT_RANGE")) {
        EXPECT_TRUE(Has(rendered.OfUserContainer("env"), variable)) << variable;
      }
    }
  });
}

TEST(EveryJob, NothingOfTheTemplateIsLost) {
  ForEachSeed([](uint64_t seed) {
    const RenderedJob rendered(seed);
    const Json& spec = rendered.pod["spec"];
    for (const char* list : {"tolerations", "volumes"}) {
      for (const Json& item : rendered.OfUser({"spec", list})) EXPECT_TRUE(Has(spec[list], item)) << item;
    }
    for (const char* list : {"ports", "volumeMounts"}) {
      for (const Json& item : rendered.OfUserContainer(list)) {
        const Json& ours = rendered.worker()[list];
        EXPECT_TRUE(std::any_of(ours.begin(), ours.end(), [&](const Json& other) {
          return std::all_of(item.items().begin(), item.items().end(), [&](const auto& member) {
            return other.contains(member.key()) && other[member.key()] == member.value();
          });
        })) << item;
      }
    }
    if (const Json* own = UserContainer(rendered.user)) {
      if (const Json* limits = Find(*own, {"resources", "limits"})) {
        for (const auto& [name, quantity] : limits->items())
          EXPECT_EQ(rendered.worker()["resources"]["limits"][name], quantity) << name;
      }
    }
    for (const Json& container : rendered.OfUser({"spec", "containers"})) {
      EXPECT_TRUE(std::any_of(spec["containers"].begin(), spec["containers"].end(),
                              [&](const Json& other) { return other["name"] == container["name"]; }));
    }
  });
}

TEST(EveryJob, KeysAreUnique) {
  ForEachSeed([](uint64_t seed) {
    const RenderedJob rendered(seed);
    const auto unique = [](const Json& list, const char* key) {
      std::set<std::string> seen;
      for (const Json& item : list)
        EXPECT_TRUE(seen.insert(item[key].dump()).second) << key << " " << item[key];
    };
    unique(rendered.pod["spec"]["containers"], "name");
    unique(rendered.pod["spec"]["volumes"], "name");
    unique(rendered.worker()["volumeMounts"], "mountPath");
    std::set<std::string> names;
    for (const Json& object : rendered.objects)
      EXPECT_TRUE(
          names.insert(object["kind"].get<std::string>() + object["metadata"]["name"].get<std::string>())
              .second);
  });
}

TEST(EveryJob, HasWhatTheOperatorReliesOn) {
  ForEachSeed([](uint64_t seed) {
    const RenderedJob rendered(seed);
    EXPECT_EQ(rendered.pod["spec"]["restartPolicy"], "Never");
    EXPECT_EQ(rendered.pod["metadata"]["labels"][kJobLabel], rendered.job.metadata.name);
    EXPECT_EQ(rendered.pod["metadata"]["labels"][kAttemptLabel], std::to_string(rendered.context.attempt));
    EXPECT_EQ(rendered.pod["metadata"]["labels"][kRankLabel], std::to_string(rendered.rank));
    EXPECT_EQ(rendered.pod["metadata"]["namespace"], rendered.job.metadata.namespace_);
    EXPECT_EQ(rendered.pod["spec"].contains("schedulingGates"), rendered.context.gang == Gang::kGate);
    if (!rendered.context.excluded_nodes.empty()) {
      for (const Json& term :
           rendered.pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                       ["nodeSelectorTerms"])
        EXPECT_EQ(term["matchFields"].back()["values"], Json{rendered.context.excluded_nodes.back()});
    }
  });
}

// Whatever the template has, the agent is installed before anything of the user's starts, and becomes the
// first process of the container that trains, with the user's words as its arguments.
TEST(EveryJob, AnAgentStartsTheUsersCommand) {
  ForEachSeed([](uint64_t seed) {
    const RenderedJob rendered(seed);
    const Json& spec = rendered.pod["spec"];
    const Json init = spec.contains("initContainers") ? spec["initContainers"] : Json::array();
    const bool installed = !init.empty() && init[0]["name"] == "ringmaster-agent";
    ASSERT_EQ(installed, api::RunsCommand(rendered.job.spec));
    if (!installed) return;
    const Json theirs = rendered.OfUserContainer("command");
    const bool library = api::UsesLibrary(rendered.job.spec);
    Json wanted = {"/ringmaster/bin/ringmaster-agent", library ? "train" : "run", "--"};
    for (const Json& word : theirs) wanted.push_back(word);
    EXPECT_EQ(rendered.worker()["command"], wanted);
    EXPECT_EQ(init[0]["command"].back(), wanted[0]);
    EXPECT_GT(spec["terminationGracePeriodSeconds"], rendered.job.spec.restart.stopSeconds);
    std::set<std::string> names;
    for (const Json& variable : rendered.worker()["env"]) names.insert(variable["name"]);
    EXPECT_EQ(names.contains("RINGMASTER_FRAMEWORK"), !library);
    EXPECT_TRUE(names.contains(library ? "RINGMASTER_JOB_FILE" : "RINGMASTER_ADDRESS"));
    EXPECT_FALSE(names.contains("MASTER_ADDR")) << "it changes with each incarnation";
  });
}

// The API server would refuse most of these. They must not crash the operator.
TEST(AnyTemplate, GivesAPodAndMessages) {
  ForEachSeed([](uint64_t seed) {
    api::TrainingJob job = RandomJob(seed);
    job.spec.workers.template_ = RandomTree(seed);
    const Context context = RandomContext(seed, job);
    const Json pod = PodOf(job, "uid-1", 0, context);
    EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
    TemplateWarnings(job);
    job.spec.workers.template_ = {{"spec", RandomTree(seed + 1)}, {"metadata", RandomTree(seed + 2)}};
    PodOf(job, "uid-1", 0, context);
    job.spec.workers.template_ = {
        {"spec", {{"containers", {RandomTree(seed + 3)}}, {"affinity", RandomTree(seed + 4)}}}};
    PodOf(job, "uid-1", 0, context);
    TemplateWarnings(job);
  });
}

}  // namespace
}  // namespace ringmaster::wiring
