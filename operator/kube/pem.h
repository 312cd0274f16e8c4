// SPDX-License-Identifier: Apache-2.0

// Checks certificates and keys when they are read, so that nothing about them can fail in the middle of a
// connection. Pure; says what is wrong without showing any of it.
#pragma once

#include <string>

#include "base/result.h"

namespace ringmaster::kube {

// At least one certificate, and nothing broken.
Status CheckCertificates(const std::string& pem);

// A certificate and its private key, without a pass phrase.
Status CheckKeyPair(const std::string& cert_pem, const std::string& key_pem);

}  // namespace ringmaster::kube
