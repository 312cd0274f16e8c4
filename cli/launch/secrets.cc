// SPDX-License-Identifier: Apache-2.0

#include "cli/launch/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "cli/launch/ignore_rules.h"

namespace ringmaster::cli::launch {
namespace {

constexpr std::array<std::string_view, 45> kNames = {".env",
                                                     ".env.*",
                                                     "*.env",
                                                     ".envrc",
                                                     "*.pem",
                                                     "*.key",
                                                     "*.p12",
                                                     "*.pfx",
                                                     "*.jks",
                                                     "*.keystore",
                                                     "*.kdbx",
                                                     "*.asc",
                                                     "*.gpg",
                                                     "id_rsa*",
                                                     "id_dsa*",
                                                     "id_ecdsa*",
                                                     "id_ed25519*",
                                                     ".netrc",
                                                     "_netrc",
                                                     ".pypirc",
                                                     ".npmrc",
                                                     ".pgpass",
                                                     ".htpasswd",
                                                     ".git-credentials",
                                                     ".dockercfg",
                                                     ".boto",
                                                     "kubeconfig*",
                                                     "*.kubeconfig",
                                                     "credentials*",
                                                     "secret.*",
                                                     "secrets.*",
                                                     "*.ppk",
                                                     ".aws",
                                                     ".ssh",
                                                     ".kube",
                                                     ".gnupg",
                                                     "*token.txt",
                                                     "*credentials.json",
                                                     "client_secret*.json",
                                                     "kaggle.json",
                                                     ".docker",
                                                     "*.tfstate",
                                                     "*.tfstate.*",
                                                     "*.tfvars",
                                                     "*.tfvars.json"};
// Examples for others to fill in, and modules of Python, have such names without secrets.
constexpr std::array<std::string_view, 6> kHarmless = {"*.example",      "*.sample",   "*.template",
                                                       "credentials.py", "secrets.py", "secret.py"};

template <size_t N>
bool MatchesAny(const std::array<std::string_view, N>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](std::string_view pattern) { return MatchesGlob(pattern, name); });
}

}  // namespace

bool IsSecretName(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return MatchesAny(kNames, lower) && !MatchesAny(kHarmless, lower);
}

bool HasPrivateKey(std::string_view text) {
  for (size_t at = text.find("-----BEGIN "); at != text.npos; at = text.find("-----BEGIN ", at + 1)) {
    const std::string_view line = text.substr(at, std::min(text.find('\n', at), text.size()) - at);
    if (line.find("PRIVATE KEY") != line.npos) return true;
  }
  return false;
}

}  // namespace ringmaster::cli::launch
