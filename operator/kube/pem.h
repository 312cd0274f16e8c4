// SPDX-License-Identifier: Apache-2.0

// Checks certificates and keys when they are read, so that they cannot fail later, while a connection is set
// up. Pure. Errors contain nothing of the keys.
#pragma once

#include <string>

#include "base/result.h"

namespace ringmaster::kube {

// Requires at least one certificate, all of them readable.
Status CheckCertificates(const std::string& pem);

// Requires a certificate and its private key, without a pass phrase.
Status CheckKeyPair(const std::string& cert_pem, const std::string& key_pem);

}  // namespace ringmaster::kube
