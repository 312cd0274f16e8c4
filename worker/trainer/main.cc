// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/main.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "api/load.h"
#include "base/exit_codes.h"
#include "base/file.h"
#include "base/log.h"
#include "base/subnormals.h"
#include "worker/compute/device/load_plugin.h"
#include "worker/compute/device/open_device.h"
#include "worker/fabric/shm/available_memory.h"
#include "worker/inventory/device_selection.h"
#include "worker/inventory/gpu_monitor.h"
#include "worker/inventory/inventory.h"
#include "worker/trainer/memory.h"
#include "worker/trainer/trainer.h"

namespace ringmaster::trainer {
namespace {

Result<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return Error{Code::kInvalid, fmt::format("{} is not set: only an agent can start a trainer", name)};
  }
  return std::string(value);
}

Result<int> Number(const char* name) {
  RM_ASSIGN(const std::string text, Variable(name));
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    return Error{Code::kInvalid, fmt::format("{}: not a number: {}", name, text)};
  }
  return value;
}

int UsableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

Result<api::TrainingJob> LoadJob() {
  RM_ASSIGN(const std::string path, Variable("RINGMASTER_JOB_FILE"));
  RM_ASSIGN(const std::string text, ReadFile(path));
  api::Loaded loaded = api::LoadYaml(text);
  if (!loaded.problems.empty())
    return Error{Code::kInvalid, path + ": " + loaded.problems.front().ToString()};
  return std::move(loaded.job);
}

Result<RunConfig> LoadRunConfig() {
  RM_ASSIGN(const api::TrainingJob job, LoadJob());
  const int threads = std::getenv("RINGMASTER_THREADS") != nullptr ? 0 : UsableCpus();
  RM_ASSIGN(RunConfig config, MakeRunConfig(job, threads));
  const char* const node = std::getenv("RINGMASTER_NODE");
  config.device = DeviceOnNode(job, node == nullptr ? "" : node);
  if (threads == 0) {
    RM_ASSIGN(config.model.threads, Number("RINGMASTER_THREADS"));
    config.model.threads = std::max(1, config.model.threads);
  }
  return config;
}

// Checks before memory is taken: the kernel would kill the trainer, again and again, and say nothing.
// With a GPU the host holds little more than a mirror of the state.
Status FitsIntoMemory(const RunConfig& config, bool on_host) {
  if (!on_host) return Ok();
  const auto need = PredictMemory(config, !config.checkpoint_path.empty());
  if (!need.ok()) return Ok();  // the model itself reports what is wrong with it
  const inventory::Memory memory = inventory::ReadMemory("");
  const auto available = fabric::shm::ReadAvailableMemory();
  const auto slots = Number("RINGMASTER_SLOTS");  // trainers of this pod
  return CheckMemory(*need, slots.ok() ? std::max(1, *slots) : 1,
                     {.total = memory.limit_bytes > 0 ? memory.limit_bytes : memory.total_bytes,
                      .available = available.has_value() ? static_cast<int64_t>(available->bytes) : 0});
}

// Sets *no_device when the device that the job requires is missing.
Result<Trainer::Parts> CreateParts(Result<RunConfig> config, agent::TrainerPage* page, AgentChannel* channel,
                                   bool* no_device) {
  Trainer::Parts parts;
  parts.page = page;
  parts.channel = channel;
  RM_ASSIGN(parts.member, Variable("RINGMASTER_MEMBER"));
  RM_ASSIGN(parts.config, std::move(config));
  RM_ASSIGN(parts.dataset, OpenData(&parts.config));
  for (const std::string& note : DataNotes(parts.config, *parts.dataset)) log::Info("{}", note);
  parts.data_hash = std::make_unique<DataHash>(parts.dataset.get(), parts.config.checkpoint_path);
  auto device = device::Open({parts.config.device, parts.config.model.threads, parts.config.transport});
  *no_device = !device.ok() && device.error().code == Code::kUnavailable;
  RM_ASSIGN(parts.device, std::move(device));
  log::Info("device={}", parts.device->Description());
  RM_TRY(FitsIntoMemory(parts.config, parts.device->OnHost()));
  RM_ASSIGN(parts.model, parts.device->CreateModel(parts.config.model));
  parts.model->SetProgressHook([page] { page->Heartbeat(); });
  return parts;
}

std::string VisibleGpus() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? "" : visible;
}

// Selects the GPU and its NICs. CUDA, UCX and NCCL read the environment at first use. NVML numbers GPUs by
// bus and CUDA by speed: without CUDA_DEVICE_ORDER the NICs and faults would be those of another GPU.
void ChooseDevices() {
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
  const std::vector<inventory::Gpu> gpus = inventory::FindGpus(inventory::GpuMonitor::kLibrary, "");
  if (gpus.empty()) return;
  // Without NVLink, UCX considers reads of another GPU's memory slower than writes and disables them. The
  // fabric only reads, and without this setting it would go through the host.
  ::setenv("UCX_CUDA_IPC_ENABLE_GET_ZCOPY", "y", 0);
  const auto get = [](const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  if (const auto mine = inventory::GpuForTurn(gpus, get("RINGMASTER_GPU_TURN")))
    ::setenv("CUDA_VISIBLE_DEVICES", mine->c_str(), 1);
  std::vector<std::string> notes;
  const inventory::NicSelection nics =
      inventory::SelectNics(gpus, VisibleGpus(), inventory::ReadRdma("", &notes));
  for (const auto& [name, value] : inventory::NicEnvironment(nics, inventory::ReadInterfaces(""), get)) {
    log::Info("{}={}", name, value);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
}

// Reports the GPU and its faults, for users and metrics. Null without the driver's library.
std::unique_ptr<inventory::GpuMonitor> WatchGpus(AgentChannel* channel) {
  inventory::GpuMonitor::Options options;
  options.visible = VisibleGpus();
  auto watch = inventory::GpuMonitor::Start(options, [channel](const inventory::GpuReport& news) {
    log::Info("gpu=\"{}\" driver={} nic={}", news.device, news.driver, news.nic.empty() ? "-" : news.nic);
    for (const std::string& fault : news.faults) log::Warn("{}", fault);
    channel->Send(rendezvous::Facts{news.device, news.driver, news.nic, news.faults});
  });
  return watch.ok() ? std::move(watch).value() : nullptr;
}

// Returns the exit code of failures that a retry or another node may resolve, unlike wrong input: too little
// memory, a missing or broken device, an internal error.
std::optional<int> RetryableExitCode(const Error& error) {
  if (error.code == Code::kInternal) return kExitInternal;
  if (error.code == Code::kExhausted) return kExitMemory;
  if (error.code == Code::kUnavailable || error.code == Code::kGone) return kExitDevice;
  return std::nullopt;
}

}  // namespace

int TrainMain(int /*argc*/, char** /*argv*/) {
  // The models' activations and gradients may hold subnormals, on which arithmetic is slow. All trainers on
  // CPUs do this, so the bits of a micro-batch remain a function of the job. What follows a micro-batch keeps
  // subnormals (worker/compute/numerics, optimizer).
  FlushSubnormals();
  const char* member = std::getenv("RINGMASTER_MEMBER");
  const char* pod = std::getenv("RINGMASTER_POD");
  log::Init(fmt::format("trainer pod={} member={:.8}", pod == nullptr ? "-" : pod,
                        member == nullptr ? "-" : member));
  const auto refuse = [](const Error& error, int code) {
    log::Error("{}", error.message);
    return code;
  };
  const auto page_fd = Number("RINGMASTER_SLOT_FD");
  if (!page_fd.ok()) return refuse(page_fd.error(), 64);
  auto page = agent::TrainerPage::Attach(*page_fd);
  if (!page.ok()) return refuse(page.error(), 70);
  page->SetActivity(agent::Activity::kStarting);
  auto config = LoadRunConfig();
  // Before any thread exists that reads the environment.
  if (config.ok() && device::MayUseGpu(config->device)) ChooseDevices();
  const auto channel_fd = Number("RINGMASTER_CHANNEL_FD");
  if (!channel_fd.ok()) return refuse(channel_fd.error(), 64);

  // From now on aborts arrive on the channel's thread, before the fabric exists and while it is destroyed.
  const auto aborter = std::make_shared<fabric::Aborter>();
  AgentChannel channel{Fd(*channel_fd),
                       [aborter](rendezvous::Generation generation) { aborter->Abort(generation); }};
  const auto fail = [&](const Error& error, int code = kExitBadInput) {
    log::Error("{}", error.message);
    channel.Send(rendezvous::Fatal{code, error.message});
    return code;
  };
  bool no_device = false;
  auto parts = CreateParts(std::move(config), &page.value(), &channel, &no_device);
  if (!parts.ok()) {
    if (no_device) return fail(parts.error(), 74);  // a restart here does not help
    if (const auto code = RetryableExitCode(parts.error())) return refuse(parts.error(), *code);
    return fail(parts.error());
  }
  const bool on_gpu = parts->device->Kind() == "cuda";
  fabric::FabricOptions options;
  options.transport = parts->config.transport;
  options.on_wait = [page = &page.value()] { page->StillWaiting(); };
  options.aborter = aborter;
  auto made = fabric::Fabric::Create(options);
  if (!made.ok()) return fail(made.error().In("fabric"));
  parts->fabric = std::move(made).value();
  auto trainer = Trainer::Create(std::move(parts).value());
  if (!trainer.ok()) {
    if (const auto code = RetryableExitCode(trainer.error())) return refuse(trainer.error(), *code);
    return fail(trainer.error());
  }
  const auto watch = on_gpu ? WatchGpus(&channel) : nullptr;
  return (*trainer)->Run();
}

}  // namespace ringmaster::trainer
