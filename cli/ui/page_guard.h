// SPDX-License-Identifier: Apache-2.0

// Decides which requests may read a page. Pure functions.
//
// A page on a loopback address is for the users of this machine. Other web sites that the same browser shows
// must not read it: the Host header must name a loopback address (no DNS rebinding), and an Origin header
// must be the page's. On any other address a request also needs the token. A browser gets it as a cookie when
// it opens the address with ?token=TOKEN.
#pragma once

#include <cstdint>
#include <string>

#include "base/http/server.h"
#include "base/result.h"

namespace ringmaster::cli {

struct PageAddress {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free port
  bool operator==(const PageAddress&) const = default;
};

// Parses "", "8080", "0.0.0.0:8080" and "[::1]:8080". Errors: kInvalid with the accepted forms.
Result<PageAddress> ParsePageAddress(const std::string& text);

bool IsLoopback(const std::string& host);  // of a PageAddress

// Returns 32 hexadecimal digits from the kernel's random numbers.
Result<std::string> MakePageToken();

struct PageGuard {
  std::string token;   // empty: the page is on a loopback address
  std::string cookie;  // name of the cookie, different for each port: browsers share cookies between ports
};

struct Admission {
  enum class Kind : uint8_t {
    kServe,
    kSignIn,  // set the cookie, then send the browser to the address without the token
    kRefuse,
  };
  Kind kind = Kind::kServe;
  http::Response response = {};  // unless kServe
};

Admission Admit(const PageGuard& guard, const http::Request& request);

// Returns the value of a parameter of a query, decoded; empty when it is missing.
std::string QueryValue(const std::string& query, const std::string& name);

}  // namespace ringmaster::cli
