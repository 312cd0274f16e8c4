// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "worker/inventory/cards.h"
#include "worker/inventory/health.h"
#include "worker/inventory/nvml.h"

namespace ringmaster::inventory {
namespace {

constexpr Duration kPatience = milliseconds(200);  // of one wait for an error: so soon an end is noticed

std::string DeviceName(const std::vector<Gpu>& gpus) {
  if (gpus.empty()) return {};
  return gpus.size() == 1 ? gpus[0].name : fmt::format("{} x {}", gpus.size(), gpus[0].name);
}

// What is wrong with them, as `ringmaster devices --health` would say it.
std::vector<std::string> TroublesOf(const Nvml& nvml, const std::string& visible,
                                    const std::vector<Gpu>& own) {
  Inventory gpus_only;
  gpus_only.gpus = VisibleGpus(nvml.Gpus(&gpus_only.notes), visible);
  // Of those that do not answer, too, only one's own: each of them is another slot's trouble.
  std::erase_if(gpus_only.notes, [&](const std::string& note) {
    return !visible.empty() && std::ranges::none_of(own, [&](const Gpu& gpu) {
      return note.find(fmt::format("number {} ", gpu.index)) != std::string::npos;
    });
  });
  std::vector<std::string> troubles;
  for (const Finding& one : JudgeGpus(gpus_only))
    if (one.grade != Grade::kGood) troubles.push_back(fmt::format("{}: {}", one.subject, one.what));
  return troubles;
}

}  // namespace

void Troubles::Saw(const std::string& trouble, Time now) {
  for (auto& [known, until] : until_) {
    if (known != trouble) continue;
    until = std::max(until, now + kOver);
    return;
  }
  until_.emplace_back(trouble, now + kOver);
}

void Troubles::Stays(const std::string& trouble) {
  std::erase_if(until_, [&](const auto& one) { return one.first == trouble; });
  until_.emplace_back(trouble, kNever);
}

std::vector<std::string> Troubles::Now(Time now) {
  std::erase_if(until_, [now](const auto& one) { return one.second <= now; });
  std::vector<std::string> all;
  for (const auto& [trouble, until] : until_) all.push_back(trouble);
  std::ranges::sort(all);
  return all;
}

std::vector<Gpu> VisibleGpus(std::vector<Gpu> gpus, const std::string& list) {
  if (list.empty()) return gpus;
  const std::string all = "," + list + ",";
  std::erase_if(gpus, [&](const Gpu& gpu) {
    if (all.find(fmt::format(",{},", gpu.index)) != std::string::npos) return false;
    for (size_t at = all.find(",GPU-"); at != std::string::npos; at = all.find(",GPU-", at + 1))
      if (gpu.uuid.starts_with(all.substr(at + 1, all.find(',', at + 1) - at - 1))) return false;
    return true;
  });
  return gpus;
}

Result<std::unique_ptr<GpuWatch>> GpuWatch::Start(const Options& options,
                                                  std::function<void(const GpuNews&)> tell) {
  RM_ASSIGN(auto nvml, Nvml::Open(options.library));
  std::vector<std::string> notes;
  std::vector<Gpu> all = nvml->Gpus(&notes);
  Locate(options.root, &all);
  const std::vector<Gpu> gpus = VisibleGpus(all, options.visible);
  if (gpus.empty()) return Error{Code::kNotFound, "no GPU answers"};
  auto watch = std::make_unique<GpuWatch>(Private{}, options, std::move(nvml), std::move(tell));
  const Cards cards = NearCards(all, options.visible, ReadRdma(options.root, &notes));
  watch->own_ = gpus;
  watch->told_ = {DeviceName(gpus), watch->nvml_->Driver(), fmt::format("{}", fmt::join(cards.own, ",")), {}};
  watch->tell_(watch->told_);
  watch->thread_ = std::thread([raw = watch.get()] { raw->Run(); });
  return watch;
}

GpuWatch::GpuWatch(Private, const Options& options, std::unique_ptr<Nvml> nvml,
                   std::function<void(const GpuNews&)> tell)
    : options_(options), nvml_(std::move(nvml)), tell_(std::move(tell)) {}

GpuWatch::~GpuWatch() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

void GpuWatch::Run() {
  const bool errors = nvml_->WatchErrors(own_);
  Troubles troubles;
  Time look_at = ringmaster::Now();
  while (!ending_) {
    const Time now = ringmaster::Now();
    if (now >= look_at) {
      look_at = now + options_.interval;
      for (const std::string& one : TroublesOf(*nvml_, options_.visible, own_)) troubles.Saw(one, now);
    }
    if (std::vector<std::string> all = troubles.Now(now); all != told_.troubles) {
      told_.troubles = std::move(all);
      tell_(told_);
    }
    const Duration wait = std::min(kPatience, options_.interval);
    const auto error = errors ? nvml_->NextError(wait) : std::nullopt;
    if (error) {
      troubles.Stays(fmt::format("{}: {}", error->uuid, DescribeXid(error->xid)));
    } else if (!errors) {
      std::this_thread::sleep_for(wait);
    }
  }
}

}  // namespace ringmaster::inventory
