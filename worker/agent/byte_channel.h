// SPDX-License-Identifier: Apache-2.0

// A connected, non-blocking socket as a stream of bytes, plain or TLS. Main thread only.
//
// TLS needs libssl, which would weigh more than the rest of the agent; it is loaded when there is something
// to encrypt, and not for `ringmaster run`.
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
  // True: both sides know each other. False: call again when the socket is ready.
  virtual Result<bool> Handshake() = 0;
  // How many bytes went, or came; 0: none now. kGone at the end of the stream.
  virtual Result<size_t> Send(const char* data, size_t size) = 0;
  virtual Result<size_t> Receive(char* into, size_t size) = 0;
};

std::unique_ptr<ByteChannel> MakePlainChannel(Fd fd);

// `ca_file`: who may sign the server's certificate, which must be for `host`. kInvalid when the file holds
// none. kUnavailable when this machine has no libssl.
Result<std::unique_ptr<ByteChannel>> MakeTlsChannel(Fd fd, const std::string& ca_file,
                                                    const std::string& host);

}  // namespace ringmaster::agent
