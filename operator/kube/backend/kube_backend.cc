// The view: what the watches bring, and what a decision gets to see of it. actions.cc has the writes.
#include "operator/kube/backend/kube_backend.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <set>
#include <utility>

#include "operator/kube/backend/decode_job.h"
#include "operator/kube/backend/decode_node.h"
#include "operator/kube/backend/decode_pod.h"
#include "operator/kube/backend/preparation.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"

namespace ringmaster::kube {

using control::Key;
using control::Kind;

namespace {

constexpr Duration kSweepEvery = seconds(1);
// After so many changes what the allocator holds of their JSON is given back, but not more often than this.
constexpr uint64_t kTrimAfter = 500;
constexpr Duration kTrimEvery = seconds(10);
constexpr Duration kDiscoverAgain = seconds(300);  // for what is installed while we run
constexpr Duration kDiscoverSoon = seconds(3);     // after a failure

std::string NameOf(const Key& key) { return key.namespace_ + "/" + key.name; }

Key KeyOf(const std::string& name) {
  const size_t slash = name.find('/');
  return {name.substr(0, slash), name.substr(slash + 1)};
}

Store<ObjectRecord>::Hooks ObjectHooks(std::function<void(const std::string&)> notify) {
  Store<ObjectRecord>::Hooks hooks;
  hooks.decode = [](const Json& object, const Meta& meta, const auto&) { return DecodeObject(object, meta); };
  hooks.group = [](const ObjectRecord& record) { return record.job; };
  hooks.changed = [notify = std::move(notify)](const std::string&, const auto& before, const auto& after) {
    notify(after ? after->job : before->job);
  };
  return hooks;
}

bool SameFacts(const core::NodeFacts& a, const core::NodeFacts& b) {
  const auto taints = [](const core::NodeFacts& facts) {
    std::vector<std::string> list;
    for (const core::Taint& taint : facts.taints)
      list.push_back(taint.key + "=" + taint.value + ":" + taint.effect);
    return list;
  };
  return a.allocatable == b.allocatable && a.labels == b.labels && a.ready == b.ready &&
         a.unschedulable == b.unschedulable && taints(a) == taints(b);
}

}  // namespace

KubeBackend::KubeBackend(ApiClient& client, Options options)
    : client_(client),
      options_(std::move(options)),
      jobs_({[this](const Json& object, const Meta& meta, const auto&) {
               return DecodeJob(object, meta, options_.clock, Now());
             },
             [](const JobRecord& record) { return NameOf(record.key); },
             [this](const std::string&, const auto& before, const auto& after) { OnJob(before, after); }}),
      pods_({[this](const Json& object, const Meta& meta, const auto& before) {
               return DecodePod(object, meta, before, requests_, options_.clock, Now());
             },
             [](const PodRecord& record) { return record.own ? record.own->job : std::string(); },
             [this](const std::string&, const auto& before, const auto& after) { OnPod(before, after); }}),
      nodes_({[this](const Json& object, const Meta& meta, const auto& before) {
                return DecodeNode(object, meta, before, options_.clock, Now());
              },
              nullptr,
              [this](const std::string& name, const auto& before, const auto& after) {
                OnNode(name, before, after);
              }}),
      namespaces_({[](const Json& object, const Meta&, const auto&) { return DecodeNamespace(object); },
                   nullptr,
                   [this](const std::string& name, const auto& before, const auto& after) {
                     OnNamespace(name, before, after);
                   }}),
      services_(ObjectHooks([this](const std::string& job) { Notify(job); })),
      config_maps_(ObjectHooks([this](const std::string& job) { Notify(job); })),
      gate_(std::make_shared<Gate>()),
      reflectors_(client, options_.watch, [this](Time now) { return Chore(now); }) {
  for (const GangApi api : kGangApis)
    groups_.emplace(api, std::make_unique<Store<ObjectRecord>>(
                             ObjectHooks([this](const std::string& job) { Notify(job); })));
}

KubeBackend::~KubeBackend() { Stop(); }

Collection KubeBackend::Watched(Resource resource, std::string label_selector, bool metadata_only) const {
  Collection collection;
  collection.resource = std::move(resource);
  collection.label_selector = std::move(label_selector);
  collection.metadata_only = metadata_only;
  if (options_.on_watch_failure) {
    collection.on_failure = [this, watched = collection.resource](const Error& error) {
      options_.on_watch_failure(watched, error);
    };
  }
  return collection;
}

void KubeBackend::Start() {
  Follow(Watched(kJobs), jobs_);
  Follow(Watched(kPods), pods_);
  reflectors_.Add(Watched(kNodes), nodes_.In({}));
  reflectors_.Add(Watched(kNamespaces, {}, true), namespaces_.In({}));
  Follow(Watched(kServices, wiring::kJobLabel, true), services_);
  Follow(Watched(kConfigMaps, wiring::kJobLabel, true), config_maps_);
  reflectors_.Start();
}

void KubeBackend::Stop() {
  reflectors_.Stop();
  std::unique_lock lock(gate_->mutex);
  gate_->closed = true;
}

bool KubeBackend::Synced() const {
  if (!jobs_.synced() || !pods_.synced() || !nodes_.synced() || !namespaces_.synced() ||
      !services_.synced() || !config_maps_.synced())
    return false;
  GangApis apis;
  {
    std::lock_guard lock(mutex_);
    apis = gang_apis_;
  }
  return std::all_of(std::begin(kGangApis), std::end(kGangApis), [&](GangApi api) {
    const auto it = apis.find(api);
    return it != apis.end() && (!it->second || groups_.at(api)->synced());
  });
}

std::vector<std::string> KubeBackend::Problems() const {
  std::vector<std::string> problems = reflectors_.Problems();
  std::lock_guard lock(mutex_);
  for (const GangApi api : kGangApis)
    if (!gang_apis_.contains(api))
      problems.push_back(fmt::format("{}: not known yet whether the API server has it", GangApiName(api)));
  return problems;
}

std::vector<std::pair<std::string, int64_t>> KubeBackend::Held() const {
  std::vector<std::pair<std::string, int64_t>> held;
  const auto add = [&](const Resource& resource, const auto& store) {
    held.emplace_back(resource.plural, static_cast<int64_t>(store.size()));
  };
  add(kJobs, jobs_);
  add(kPods, pods_);
  add(kNodes, nodes_);
  add(kNamespaces, namespaces_);
  add(kServices, services_);
  add(kConfigMaps, config_maps_);
  int64_t groups = 0;
  for (const auto& [api, store] : groups_) groups += static_cast<int64_t>(store->size());
  held.emplace_back("podgroups", groups);
  return held;
}

// ---- chores, on the thread of the reflectors

Time KubeBackend::Chore(Time now) {
  bool discover = false;
  bool sweep = false;
  bool trim = false;
  Time next = kNever;
  {
    std::lock_guard lock(mutex_);
    discover = now >= discover_at_;
    if (discover) discover_at_ = now + kDiscoverAgain;
    next = discover_at_;
    // Everybody who waits for room looks again, but not for each pod that ends.
    sweep = room_changed_ && now >= last_sweep_ + kSweepEvery;
    if (sweep) {
      room_changed_ = false;
      last_sweep_ = now;
    }
    if (room_changed_) next = std::min(next, last_sweep_ + kSweepEvery);
    trim = changes_ >= kTrimAfter && now >= last_trim_ + kTrimEvery;
    if (trim) {
      changes_ = 0;
      last_trim_ = now;
    }
    if (changes_ >= kTrimAfter) next = std::min(next, last_trim_ + kTrimEvery);
  }
  if (trim) ::malloc_trim(0);
  if (discover) Discover();
  if (sweep) {
    std::set<std::string> waiting;
    for (const auto& pod : pods_.All())
      if (pod->own && pod->own->pod.gated) waiting.insert(pod->own->job);
    for (const std::string& job : waiting) Notify(job);
  }
  return next;
}

void KubeBackend::Discover() {
  for (const GangApi api : kGangApis) {
    {
      std::lock_guard lock(mutex_);
      if (const auto it = gang_apis_.find(api); it != gang_apis_.end() && it->second) continue;
    }
    const Resource resource = ResourceOf(api);
    client_.Raw("/apis/" + resource.ApiVersion(), Guard([this, api, resource](Result<Json> result) {
                  bool served = false;
                  if (result.ok()) {
                    for (const Json& item : Items(*result, "resources"))
                      served |= Text(item, "name") == resource.plural;
                  } else if (result.error().code != Code::kNotFound) {
                    std::lock_guard lock(mutex_);
                    discover_at_ = std::min(discover_at_, Now() + kDiscoverSoon);
                    reflectors_.Poke();
                    return;
                  }
                  {
                    std::lock_guard lock(mutex_);
                    if (std::exchange(gang_apis_[api], served)) return;
                  }
                  if (!served) return;
                  Follow(Watched(resource, wiring::kJobLabel, true), *groups_.at(api));
                  for (const std::string& job : jobs_.Keys()) Notify(job);
                }));
  }
}

// ---- what the watches bring

void KubeBackend::OnJob(const Job& before, const Job& after) {
  const Job& job = after ? after : before;
  const std::string name = NameOf(job->key);
  if (!after) {
    std::lock_guard lock(mutex_);
    live_.erase(name);
  } else if (before && before->uid == after->uid && options_.on_job) {
    options_.on_job(*before, *after);
  }
  Notify(name);
}

void KubeBackend::OnPod(const std::shared_ptr<const PodRecord>& before,
                        const std::shared_ptr<const PodRecord>& after) {
  bool freed = false;
  bool many = false;
  {
    std::lock_guard lock(mutex_);
    many = ++changes_ == kTrimAfter;
    if (before && (!after || after->uid() != before->uid())) {
      capacity_.RemovePod(before->uid());
      freed = !before->ended;
    }
    if (after) {
      const PodRecord::Own* own = after->own.get();
      if (after->ended) {
        capacity_.RemovePod(after->uid());
        freed = freed || !before || !before->ended;
      } else if (!after->node().empty()) {
        capacity_.SetPod(after->uid(), *after->requests, after->node());
      } else if (own != nullptr && !own->pod.gated && !own->pod.deleting()) {
        capacity_.ExpectPod(after->uid(), own->shape);
      } else if (own != nullptr && own->pod.gated && !own->pod.deleting()) {
        capacity_.SetGated(after->uid());
      } else {
        capacity_.RemovePod(after->uid());
      }
    }
  }
  if (many) reflectors_.Poke();
  if (freed) RoomChanged();
  if (before && before->own && (!after || !after->own || after->own->job != before->own->job))
    Notify(before->own->job);
  if (after && after->own) Notify(after->own->job);
}

void KubeBackend::OnNode(const std::string& name, const std::shared_ptr<const NodeRecord>& before,
                         const std::shared_ptr<const NodeRecord>& after) {
  const bool lost = !after || after->unreachable_since.has_value();
  bool was_lost = before && before->unreachable_since.has_value();
  if (!before || !after || !SameFacts(before->facts, after->facts)) {
    {
      std::lock_guard lock(mutex_);
      if (after) {
        capacity_.SetNode(after->facts);
        was_lost = missing_nodes_.erase(name) > 0 || was_lost;
      } else {
        capacity_.RemoveNode(name);
      }
    }
    RoomChanged();
  }
  if (lost == was_lost && after) return;
  std::set<std::string> jobs;
  for (const auto& pod : pods_.All())
    if (pod->own && pod->node() == name) jobs.insert(pod->own->job);
  for (const std::string& job : jobs) Notify(job);
}

void KubeBackend::OnNamespace(const std::string& name, const std::shared_ptr<const NamespaceRecord>& before,
                              const std::shared_ptr<const NamespaceRecord>& after) {
  if (before && after && before->pod_security == after->pod_security && before->ending == after->ending)
    return;
  for (const std::string& job : jobs_.Keys())
    if (job.starts_with(name + "/")) Notify(job);
}

void KubeBackend::RoomChanged() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(room_changed_, true)) return;
  }
  reflectors_.Poke();
}

void KubeBackend::Notify(const std::string& job) const {
  std::vector<std::function<void(const Key&)>> subscribers;
  {
    std::lock_guard lock(mutex_);
    subscribers = subscribers_;
  }
  const Key key = KeyOf(job);
  for (const auto& subscriber : subscribers) subscriber(key);
}

void KubeBackend::Subscribe(std::function<void(const Key&)> changed) {
  std::lock_guard lock(mutex_);
  subscribers_.push_back(std::move(changed));
}

void KubeBackend::SetAuthority(std::string pem) {
  {
    std::lock_guard lock(mutex_);
    if (authority_pem_ == pem) return;
    authority_ = AuthorityHash(pem);
    authority_pem_ = std::move(pem);
  }
  for (const std::string& job : jobs_.Keys()) Notify(job);
}

wiring::Context KubeBackend::ContextOf(const JobRecord& job) const {
  wiring::Context context = options_.context(job.key);
  context.gang = GangOf(job);
  context.host_port_base = PortsOf(job).first;
  std::lock_guard lock(mutex_);
  context.coordinator_ca_pem = authority_pem_;
  return context;
}

void KubeBackend::SetReport(const Key& key, rendezvous::Report report) {
  const Job job = jobs_.Get(NameOf(key));
  if (!job) return;
  {
    std::lock_guard lock(mutex_);
    LiveOf(*job).report = std::move(report);
  }
  Notify(NameOf(key));
}

void KubeBackend::Record(const Key& key, const core::Event& event) {
  const Job job = jobs_.Get(NameOf(key));
  if (options_.on_event) options_.on_event(key, job ? job->uid : std::string(), event);
}

KubeBackend::Live& KubeBackend::LiveOf(const JobRecord& job) const {
  Live& live = live_[NameOf(job.key)];
  if (live.uid != job.uid) {
    live = Live();
    live.uid = job.uid;
  }
  return live;
}

// ---- snapshots

std::optional<control::Snapshot> KubeBackend::Observe(const Key& key) const {
  const Job job = jobs_.Get(NameOf(key));
  if (!job) return std::nullopt;
  control::Snapshot snapshot;
  snapshot.job_revision = job->revision;
  core::Observed& observed = snapshot.observed;
  observed.job = job->job;
  observed.status = job->status;
  observed.pods = PodsOf(*job);
  observed.invalid = job->problem;
  if (!observed.invalid.empty()) return snapshot;
  observed.prepared = PreparedOf(*job);
  observed.provider = ProviderOf(*job);
  if (observed.provider == core::GangProvider::kGate) observed.fit = FitOf(*job);
  if (!job->status.ended()) observed.preflight = PreflightOf(*job);
  std::lock_guard lock(mutex_);
  const Live& live = LiveOf(*job);
  observed.order = live.order;
  if (job->job.native) observed.report = live.report;
  return snapshot;
}

control::Revision KubeBackend::Seen(Kind kind, const Key& key) const {
  return kind == Kind::kJob ? jobs_.revision(key.namespace_) : pods_.revision(key.namespace_);
}

std::vector<Key> KubeBackend::Keys() const {
  std::vector<Key> keys;
  for (const auto& job : jobs_.All()) keys.push_back(job->key);
  return keys;
}

std::vector<core::Pod> KubeBackend::PodsOf(const JobRecord& job) const {
  std::vector<core::Pod> pods;
  for (const auto& record : pods_.Group(NameOf(job.key))) {
    if (record->own->owner_uid != job.uid) continue;  // of a job of that name that was
    core::Pod& pod = pods.emplace_back(record->own->pod);
    if (pod.node.empty()) continue;
    if (const auto node = nodes_.Get(pod.node)) {
      pod.unreachable_since = node->unreachable_since;
    } else if (nodes_.synced()) {
      std::lock_guard lock(mutex_);
      pod.unreachable_since = missing_nodes_.try_emplace(pod.node, Now()).first->second;
    }
  }
  std::sort(pods.begin(), pods.end(), [](const core::Pod& a, const core::Pod& b) {
    return std::pair(a.attempt, a.rank) < std::pair(b.attempt, b.rank);
  });
  return pods;
}

wiring::Gang KubeBackend::GangOf(const JobRecord& job) const {
  std::lock_guard lock(mutex_);
  return ChooseGang(job.job.gang, std::max(job.job.max, job.job.replicas), gang_apis_)
      .value_or(wiring::Gang::kNone);
}

core::GangProvider KubeBackend::ProviderOf(const JobRecord& job) const {
  switch (GangOf(job)) {
    case wiring::Gang::kNone:
      return core::GangProvider::kNone;
    case wiring::Gang::kGate:
      return core::GangProvider::kGate;
    default:
      return core::GangProvider::kScheduler;
  }
}

core::Fit KubeBackend::FitOf(const JobRecord& job) const {
  int32_t gated = 0;
  std::shared_ptr<const core::PodShape> shape;
  std::vector<std::string> beside;
  for (const auto& record : pods_.Group(NameOf(job.key))) {
    const PodRecord::Own& own = *record->own;
    if (own.owner_uid != job.uid || own.pod.attempt != job.status.ledger.attempt) continue;
    if (!record->node().empty() && !record->ended) beside.push_back(record->node());
    if (!own.pod.gated || own.pod.deleting() || record->ended) continue;
    gated += 1;
    shape = own.shape;
  }
  if (gated == 0 || !shape) return {};
  std::lock_guard lock(mutex_);
  return capacity_.FitOf(*shape, gated, beside);
}

std::optional<core::PrepareGang> KubeBackend::PreparedOf(const JobRecord& job) const {
  std::vector<Made> made;
  uint64_t authority = 0;
  {
    std::lock_guard lock(mutex_);
    Live& live = LiveOf(job);
    // What the watch has brought is judged by what it has brought since: it may be gone again.
    std::erase_if(live.made, [&](const Made& item) {
      return item.store->revision(job.key.namespace_) >= item.revision;
    });
    made = live.made;
    authority = authority_;
  }
  std::vector<std::string> marks;
  for (const Made& item : made) marks.push_back(item.mark);
  const auto gather = [&](const Store<ObjectRecord>& store) {
    for (const auto& record : store.Group(NameOf(job.key))) {
      if (record->owner_uid != job.uid) continue;
      const bool older = std::any_of(made.begin(), made.end(), [&](const Made& item) {
        return item.store == &store && item.name == record->name;
      });
      if (!older) marks.push_back(record->prepared_for);
    }
  };
  gather(services_);
  gather(config_maps_);
  for (const auto& [api, store] : groups_) gather(*store);
  return ReadMarks(marks, authority);
}

PortRange KubeBackend::PortsOf(const JobRecord& job) const {
  if (!job.api.spec.network.hostNetwork) return {};
  {
    std::lock_guard lock(mutex_);
    if (const Live& live = LiveOf(job); live.ports.count > 0) return live.ports;
  }
  for (const Store<ObjectRecord>* store : {&services_, &config_maps_})
    for (const auto& record : store->Group(NameOf(job.key)))
      if (const auto mark = ReadMark(record->prepared_for); mark && record->owner_uid == job.uid)
        return mark->ports;
  return {};
}

Result<PortRange> KubeBackend::AllotPorts(const JobRecord& job) {
  if (!job.api.spec.network.hostNetwork) return PortRange{};
  const int64_t wanted = int64_t{std::max(job.job.max, job.job.replicas)} * wiring::kHostPortsPerPod;
  const PortRange all = options_.host_ports;
  const Error none{Code::kExhausted,
                   fmt::format("needs {} ports of its own on hostNetwork: no {} in a row of {}-{} are free",
                               wanted, wanted, all.first, all.first + all.count - 1)};
  if (wanted > all.count) return none;
  if (const PortRange held = PortsOf(job); held.count >= wanted) return held;
  std::lock_guard lock(mutex_);
  std::vector<PortRange> taken;
  for (const auto& [name, live] : live_) taken.push_back(live.ports);
  for (const Store<ObjectRecord>* store : {&services_, &config_maps_})
    for (const auto& record : store->All())
      if (const auto mark = ReadMark(record->prepared_for)) taken.push_back(mark->ports);
  const auto found = FreePorts(all, std::move(taken), static_cast<int32_t>(wanted));
  if (!found) return none;
  LiveOf(job).ports = *found;
  return *found;
}

std::optional<core::Refusal> KubeBackend::PreflightOf(const JobRecord& job) const {
  const auto space = namespaces_.Get(job.key.namespace_);
  const std::string level = space ? space->pod_security : std::string();
  const bool ending = space && space->ending;
  std::string basis;
  {
    std::lock_guard lock(mutex_);
    basis = fmt::format("{}/{}/{}", job.job.spec_generation, level, ending);
    for (const auto& [api, served] : gang_apis_) basis += served ? '+' : '-';
    const Live& live = LiveOf(job);
    if (live.preflight_for == basis) return live.preflight;
  }
  core::RefusalKind kind = core::RefusalKind::kForbidden;
  std::optional<std::string> message = RefusalOf(job, kind);
  std::lock_guard lock(mutex_);
  Live& live = LiveOf(job);
  live.preflight_for = basis;
  const Time now = Now();
  if (!message) {
    live.preflight.reset();
  } else {
    const Time since = live.preflight && live.preflight->kind == kind ? live.preflight->since : now;
    live.preflight = core::Refusal{kind, *std::move(message), since, since};
  }
  return live.preflight;
}

std::optional<std::string> KubeBackend::RefusalOf(const JobRecord& job, core::RefusalKind& kind) const {
  const auto space = namespaces_.Get(job.key.namespace_);
  if (space && space->ending) {
    kind = core::RefusalKind::kNamespaceEnding;
    return "namespace " + job.key.namespace_ + " is being deleted";
  }
  {
    std::lock_guard lock(mutex_);
    if (!ChooseGang(job.job.gang, job.job.max, gang_apis_)) {
      kind = core::RefusalKind::kNoGangProvider;
      return fmt::format(
          "spec.scheduling.gang is {} and the API server serves no such PodGroup: install it, or set `auto` "
          "or `gate`",
          job.api.spec.scheduling.gang);
    }
  }
  if (!space || space->pod_security.empty() || space->pod_security == "privileged") return std::nullopt;
  wiring::Context context = ContextOf(job);
  context.size = job.job.Target();
  const Json pod = wiring::PodOf(job.Whole(), job.uid, 0, context);
  const std::vector<std::string> refusals = wiring::PodSecurityRefusals(pod, space->pod_security);
  if (refusals.empty()) return std::nullopt;
  kind = core::RefusalKind::kPodSecurity;
  std::string message =
      fmt::format("namespace {} enforces Pod Security level {}: ", job.key.namespace_, space->pod_security);
  for (size_t i = 0; i < refusals.size(); ++i) message += (i == 0 ? "" : "; ") + refusals[i];
  return message;
}

}  // namespace ringmaster::kube
