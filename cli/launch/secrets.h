// SPDX-License-Identifier: Apache-2.0

// Recognises files that must not leave the machine with the code. Names decide, and the text of private keys.
// Pure functions.
#pragma once

#include <string_view>

namespace ringmaster::cli::launch {

// Whether a file or folder of this name holds credentials by convention: .env, id_rsa, .aws and the like.
bool IsSecretName(std::string_view name);

// Whether the text has a private key in the form of PEM or OpenSSH.
bool HasPrivateKey(std::string_view text);

}  // namespace ringmaster::cli::launch
