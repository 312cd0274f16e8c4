// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/ucx/context.h"

#include <fmt/format.h>
#include <ucs/config/global_opts.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace ringmaster::fabric::ucx {
namespace {

// Over TCP one message is one fragment (see kSegmentBytes). A connection is established without blocking:
// otherwise a peer whose node drops packets holds this process in connect(2) for two minutes, and one that
// ends at that moment trips an assertion of UCX 1.13. `name` is the key in UCX's tables, `variable` its
// environment variable; a variable that the user has set wins. The order counts: the second size must not
// exceed the first.
struct Setting {
  const char* variable;
  const char* name;
  const char* value;
};
constexpr Setting kSettings[] = {
    {"UCX_TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "192k"},
    {"UCX_TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "192k"},
    {"UCX_TCP_CONN_NB", "CONN_NB", "y"},
};

// Up to 1.22 at least, UCX's TCP completes a message twice that it has sent in part, without a copy, when the
// peer resets the connection (uct_tcp_ep_sendv, after the error handler has purged it), and the second
// completion ends the process. With copies a message has no completion to repeat, at the same speed. RDMA
// needs large messages uncopied.
constexpr Setting kCopies = {"UCX_ZCOPY_THRESH", "ZCOPY_THRESH", "inf"};
constexpr Setting kNoCopies = {"UCX_ZCOPY_THRESH", "ZCOPY_THRESH", "16k"};

bool HasRdma() {
  std::error_code error;
  return !std::filesystem::is_empty("/sys/class/infiniband", error) && !error;
}

// UCX must not print the death of a peer as an error: the caller gets it as a status.
void QuietenUcx() {
  if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

// RNDV_THRESH: with rendezvous, which gets do not need, UCX requires lanes whose keys it can invalidate, so
// that a failed peer cannot write any more. Peers only read here, and some lanes cannot invalidate keys.
constexpr Setting kDirect[] = {
    {"UCX_PROTO_EMULATION_ENABLE", "PROTO_EMULATION_ENABLE", "n"},
    {"UCX_RNDV_THRESH", "RNDV_THRESH", "inf"},
};

// Newer libraries expect the transport's name in front of a transport's setting.
void Apply(const Setting& setting, ucp_config_t* config) {
  if (std::getenv(setting.variable) != nullptr) return;
  const char* const whole = setting.variable + std::string_view("UCX_").size();
  ucs_status_t status = ucp_config_modify(config, setting.name, setting.value);
  if (status != UCS_OK) status = ucp_config_modify(config, whole, setting.value);
  if (status != UCS_OK)
    log::Warn("ucx setting={} value={} error={}", setting.variable, setting.value, ucs_status_string(status));
}

}  // namespace

Error UcxError(const std::string& what, ucs_status_t status) {
  return {Code::kUnavailable, fmt::format("{}: {}", what, ucs_status_string(status))};
}

RegisteredMemory::~RegisteredMemory() {
  if (handle_ != nullptr) ucp_mem_unmap(context_->get(), handle_);
}

Result<std::unique_ptr<Context>> Context::Create(uint64_t features, bool direct) {
  auto self = std::unique_ptr<Context>(new Context);
  QuietenUcx();
  ucp_config_t* config = nullptr;
  if (const auto status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK)
    return UcxError("ucp_config_read", status);
  const std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)> config_owner(config, ucp_config_release);
  for (const Setting& setting : kSettings) Apply(setting, config);
  Apply(HasRdma() ? kNoCopies : kCopies, config);
  if (direct && CanDisableEmulation())
    for (const Setting& setting : kDirect) Apply(setting, config);
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = features;
  if (const auto status = ucp_init(&params, config, &self->context_); status != UCS_OK)
    return UcxError("ucp_init", status);
  return self;
}

Context::~Context() {
  if (context_ != nullptr) ucp_cleanup(context_);
}

bool Context::Supports(ucs_memory_type_t type) const {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return ucp_context_query(context_, &attributes) == UCS_OK && (attributes.memory_types & UCS_BIT(type)) != 0;
}

Result<RegisteredMemory> Context::Register(std::span<std::byte> memory, ucs_memory_type_t type) const {
  RegisteredMemory mapped;
  mapped.context_ = this;
  mapped.memory_ = memory;
  ucp_mem_map_params_t params{};
  params.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = memory.data();
  params.length = memory.size();
  params.memory_type = type;
  if (const auto status = ucp_mem_map(context_, &params, &mapped.handle_); status != UCS_OK)
    return UcxError(fmt::format("ucp_mem_map of {} bytes", memory.size()), status);
  void* key = nullptr;
  size_t bytes = 0;
  if (const auto status = ucp_rkey_pack(context_, mapped.handle_, &key, &bytes); status != UCS_OK)
    return UcxError("ucp_rkey_pack", status);
  mapped.key_.assign(static_cast<const char*>(key), bytes);
  ucp_rkey_buffer_release(key);
  return mapped;
}

std::string LibraryVersion() { return ucp_get_version_string(); }

std::pair<unsigned, unsigned> LibraryMajorMinor() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  return {major, minor};
}

}  // namespace ringmaster::fabric::ucx
