#include <uct/api/uct.h>

#include <memory>
#include <type_traits>

#include "worker/devices/devices.h"

namespace ringmaster::devices {
namespace {

const char* KindName(uct_device_type_t type) {
  switch (type) {
    case UCT_DEVICE_TYPE_NET:
      return "net";
    case UCT_DEVICE_TYPE_SHM:
      return "shm";
    case UCT_DEVICE_TYPE_ACC:
      return "accelerator";
    case UCT_DEVICE_TYPE_SELF:
      return "self";
    default:
      return "other";
  }
}

struct CloseDomain {
  void operator()(uct_md_h domain) const { ::uct_md_close(domain); }
};
struct ReleaseConfig {
  void operator()(uct_md_config_t* config) const { ::uct_config_release(config); }
};
using Domain = std::unique_ptr<std::remove_pointer_t<uct_md_h>, CloseDomain>;

Domain OpenDomain(uct_component_h component, const char* name) {
  uct_md_config_t* read = nullptr;
  if (::uct_md_config_read(component, nullptr, nullptr, &read) != UCS_OK) return nullptr;
  const std::unique_ptr<uct_md_config_t, ReleaseConfig> config(read);
  uct_md_h domain = nullptr;
  if (::uct_md_open(component, name, config.get(), &domain) != UCS_OK) return nullptr;
  return Domain(domain);
}

std::vector<uct_md_resource_desc_t> DomainsOf(uct_component_h component) {
  uct_component_attr_t attributes = {};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (::uct_component_query(component, &attributes) != UCS_OK) return {};
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (domains.empty() || ::uct_component_query(component, &attributes) != UCS_OK) return {};
  return domains;
}

void AddTransports(uct_md_h domain, std::vector<Transport>* transports) {
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (::uct_md_query_tl_resources(domain, &resources, &count) != UCS_OK) return;
  for (unsigned i = 0; i < count; ++i) {
    transports->push_back({resources[i].tl_name, resources[i].dev_name, KindName(resources[i].dev_type)});
  }
  ::uct_release_tl_resource_list(resources);
}

}  // namespace

std::vector<Transport> AskTransports(std::vector<std::string>* notes) {
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (const ucs_status_t status = ::uct_query_components(&components, &count); status != UCS_OK) {
    notes->push_back(fmt::format("UCX: {}", ::ucs_status_string(status)));
    return {};
  }
  std::vector<Transport> transports;
  for (unsigned i = 0; i < count; ++i) {
    for (const uct_md_resource_desc_t& resource : DomainsOf(components[i])) {
      // A domain that does not open (no permission, no driver) offers nothing here.
      if (const Domain domain = OpenDomain(components[i], resource.md_name)) {
        AddTransports(domain.get(), &transports);
      }
    }
  }
  ::uct_release_component_list(components);
  if (transports.empty()) notes->push_back("UCX: offers no transport here");
  return transports;
}

}  // namespace ringmaster::devices
