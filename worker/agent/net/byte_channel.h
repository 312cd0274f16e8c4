// SPDX-License-Identifier: Apache-2.0

// ByteChannel is a connected, non-blocking socket as a byte stream, plain or TLS. Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster::agent {

class ByteChannel {
 public:
  virtual ~ByteChannel() = default;
  virtual int fd() const = 0;
  // Returns true when the handshake is complete; false: call again when the socket is ready.
  virtual Result<bool> Handshake() = 0;
  // Return the number of bytes sent or received; 0: the call would block. Errors: kGone at the end of the
  // stream.
  virtual Result<size_t> Send(const char* data, size_t size) = 0;
  virtual Result<size_t> Receive(char* into, size_t size) = 0;
};

std::unique_ptr<ByteChannel> MakePlainChannel(Fd fd);

// `ca_file`: the authorities that may sign the server's certificate, which must be for `host`. Errors:
// kInvalid when the file has no certificate.
Result<std::unique_ptr<ByteChannel>> MakeTlsChannel(Fd fd, const std::string& ca_file,
                                                    const std::string& host);

// TLS 1.3 between two parties that know `key`, without certificates: each proves to the other that it knows
// the key, and a new key exchange protects the session.
Result<std::unique_ptr<ByteChannel>> MakeSharedKeyChannel(Fd fd, const std::string& key, bool server);

}  // namespace ringmaster::agent
