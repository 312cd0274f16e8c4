// SPDX-License-Identifier: Apache-2.0

#include "operator/endpoint.h"

namespace ringmaster::operator_main {

Json EndpointSliceFor(const std::string& service, const std::string& namespace_, const std::string& ip,
                      uint16_t port) {
  const bool is_v6 = ip.find(':') != std::string::npos;
  return {{"apiVersion", "discovery.k8s.io/v1"},
          {"kind", "EndpointSlice"},
          {"metadata",
           {{"name", service},
            {"namespace", namespace_},
            {"labels",
             {{"kubernetes.io/service-name", service},
              {"endpointslice.kubernetes.io/managed-by", "ringmaster-operator"}}}}},
          {"addressType", is_v6 ? "IPv6" : "IPv4"},
          {"endpoints", Json::array({{{"addresses", Json::array({ip})}, {"conditions", {{"ready", true}}}}})},
          {"ports", Json::array({{{"name", "rendezvous"}, {"port", port}, {"protocol", "TCP"}}})}};
}

}  // namespace ringmaster::operator_main
