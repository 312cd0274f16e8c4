// SPDX-License-Identifier: Apache-2.0

// The transports of UCX, queried from libuct. libuct is loaded only here, and only where it is installed:
// loading it alone hooks the allocator's system calls in the whole process, which only senders should pay
// for.
#include <dlfcn.h>
#include <uct/api/uct.h>

#include <string>
#include <vector>

#include "worker/inventory/inventory.h"

namespace ringmaster::inventory {
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

// The functions of libuct that are used. `missing` names one that this version lacks, if any.
struct Uct {
  decltype(&::uct_query_components) query_components = nullptr;
  decltype(&::uct_release_component_list) release_component_list = nullptr;
  decltype(&::uct_component_query) component_query = nullptr;
  decltype(&::uct_md_config_read) md_config_read = nullptr;
  decltype(&::uct_config_release) config_release = nullptr;
  decltype(&::uct_md_open) md_open = nullptr;
  decltype(&::uct_md_close) md_close = nullptr;
  decltype(&::uct_md_query_tl_resources) query_resources = nullptr;
  decltype(&::uct_release_tl_resource_list) release_resources = nullptr;
  const char* missing = nullptr;

  explicit Uct(void* library) {
    Find(library, "uct_query_components", &query_components);
    Find(library, "uct_release_component_list", &release_component_list);
    Find(library, "uct_component_query", &component_query);
    Find(library, "uct_md_config_read", &md_config_read);
    Find(library, "uct_config_release", &config_release);
    Find(library, "uct_md_open", &md_open);
    Find(library, "uct_md_close", &md_close);
    Find(library, "uct_md_query_tl_resources", &query_resources);
    Find(library, "uct_release_tl_resource_list", &release_resources);
  }

 private:
  template <class Function>
  void Find(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(::dlsym(library, name));
    if (*function == nullptr) missing = name;
  }
};

std::vector<uct_md_resource_desc_t> DomainsOf(const Uct& uct, uct_component_h component) {
  uct_component_attr_t attributes = {};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct.component_query(component, &attributes) != UCS_OK) return {};
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (domains.empty() || uct.component_query(component, &attributes) != UCS_OK) return {};
  return domains;
}

// A memory domain that does not open (no permission, no driver) adds no transports.
void AddTransports(const Uct& uct, uct_component_h component, const char* name,
                   std::vector<Transport>* transports) {
  uct_md_config_t* config = nullptr;
  if (uct.md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return;
  uct_md_h domain = nullptr;
  const ucs_status_t opened = uct.md_open(component, name, config, &domain);
  uct.config_release(config);
  if (opened != UCS_OK) return;
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (uct.query_resources(domain, &resources, &count) == UCS_OK) {
    for (unsigned i = 0; i < count; ++i)
      transports->push_back({resources[i].tl_name, resources[i].dev_name, KindName(resources[i].dev_type)});
    uct.release_resources(resources);
  }
  uct.md_close(domain);
}

}  // namespace

std::vector<Transport> QueryTransports(const std::string& library, std::vector<std::string>* notes) {
  // Never unloaded: its hooks stay in the process.
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    notes->push_back("UCX: " + library + " is not installed");
    return {};
  }
  const Uct uct(handle);
  if (uct.missing != nullptr) {
    notes->push_back(fmt::format("UCX: {} lacks {}", library, uct.missing));
    return {};
  }
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (const ucs_status_t status = uct.query_components(&components, &count); status != UCS_OK) {
    notes->push_back(fmt::format("UCX: cannot query its components (error {})", static_cast<int>(status)));
    return {};
  }
  std::vector<Transport> transports;
  for (unsigned i = 0; i < count; ++i)
    for (const uct_md_resource_desc_t& resource : DomainsOf(uct, components[i]))
      AddTransports(uct, components[i], resource.md_name, &transports);
  uct.release_component_list(components);
  if (transports.empty()) notes->push_back("UCX: no transport is available here");
  return transports;
}

}  // namespace ringmaster::inventory
