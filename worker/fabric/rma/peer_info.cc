// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/rma/peer_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

namespace ringmaster::fabric::rma {
namespace {

using nlohmann::json;

json Bytes(std::string_view text) { return json::binary(std::vector<uint8_t>(text.begin(), text.end())); }

std::string Text(const json& value) {
  const auto& bytes = value.get_binary();
  return std::string(bytes.begin(), bytes.end());
}

bool IsRdma(std::string_view lane) {
  constexpr std::string_view kKinds[] = {"rc_", "dc_", "ud_", "gga_"};
  return std::ranges::any_of(kKinds, [&](std::string_view kind) { return lane.starts_with(kind); });
}

}  // namespace

std::string Encode(const PeerInfo& info) {
  json regions = json::array();
  for (const MemoryRegionInfo& region : info.regions)
    regions.push_back({region.address, region.bytes, Bytes(region.key)});
  const std::vector<uint8_t> bytes = json::to_cbor({{"refusal", Bytes(info.unsupported_reason)},
                                                    {"host", Bytes(info.host_id)},
                                                    {"worker", Bytes(info.worker)},
                                                    {"scratch", info.scratch_bytes},
                                                    {"protocol", info.protocol},
                                                    {"regions", std::move(regions)}});
  return std::string(bytes.begin(), bytes.end());
}

Result<PeerInfo> Decode(std::string_view bytes) {
  try {
    const json value = json::from_cbor(bytes.begin(), bytes.end());
    PeerInfo info;
    info.protocol = value.at("protocol").get<uint32_t>();
    if (info.protocol != kProtocol) return info;  // the other fields are unknown
    info.scratch_bytes = value.at("scratch").get<uint64_t>();
    info.unsupported_reason = Text(value.at("refusal"));
    info.host_id = Text(value.at("host"));
    info.worker = Text(value.at("worker"));
    for (const json& region : value.at("regions"))
      info.regions.push_back(
          {region.at(0).get<uint64_t>(), region.at(1).get<uint64_t>(), Text(region.at(2))});
    return info;
  } catch (const json::exception& error) {
    return Error{Code::kCorrupt, std::string("not a peer info: ") + error.what()};
  }
}

Result<std::vector<PeerInfo>> ExchangePeerInfo(Communicator* host, const PeerInfo& own) {
  const auto world = static_cast<size_t>(host->world());
  const auto rank = static_cast<size_t>(host->rank());
  const std::string text = Encode(own);
  std::vector<uint32_t> sizes(world);
  sizes[rank] = static_cast<uint32_t>(text.size());
  RM_TRY(host->AllGather(std::as_writable_bytes(std::span(sizes))));
  const size_t longest = *std::ranges::max_element(sizes);
  std::vector<char> all(world * longest);
  std::ranges::copy(text, all.begin() + static_cast<ptrdiff_t>(rank * longest));
  RM_TRY(host->AllGather(std::as_writable_bytes(std::span(all))));
  std::vector<PeerInfo> infos;
  for (size_t q = 0; q < world; ++q) {
    RM_ASSIGN(PeerInfo info, Decode({all.data() + q * longest, sizes[q]}));
    infos.push_back(std::move(info));
  }
  return infos;
}

std::string WhyIncompatible(const std::vector<PeerInfo>& infos) {
  for (size_t q = 0; q < infos.size(); ++q) {
    if (infos[q].protocol != kProtocol)
      return fmt::format("rank {} runs another build: protocol {}, not {}", q, infos[q].protocol, kProtocol);
    if (!infos[q].unsupported_reason.empty())
      return fmt::format("rank {}: {}", q, infos[q].unsupported_reason);
    if (infos[q].scratch_bytes != infos[0].scratch_bytes)
      return fmt::format("rank {} has {} bytes of scratch memory, rank 0 has {}", q, infos[q].scratch_bytes,
                         infos[0].scratch_bytes);
  }
  return "";
}

std::set<std::string> SplitNames(std::string_view joined) {
  std::set<std::string> names;
  while (!joined.empty()) {
    const std::string_view name = joined.substr(0, joined.find('+'));
    joined.remove_prefix(std::min(joined.size(), name.size() + 1));
    names.emplace(name);
  }
  return names;
}

std::string GpuTransports(bool one_host, std::string_view lanes) {
  const std::set<std::string> names = SplitNames(lanes);
  if (one_host && names.contains("cuda_ipc")) return "cuda_ipc";  // UCX prefers it, too
  std::string rdma;
  for (const std::string& name : names)
    if (IsRdma(name)) rdma += (rdma.empty() ? "" : "+") + name;
  return rdma;
}

}  // namespace ringmaster::fabric::rma
