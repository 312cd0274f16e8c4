// SPDX-License-Identifier: Apache-2.0

// Serves the live page and its data to browsers:
//
//   /              the page; /page.js, /page.css: its parts, embedded in the program
//   /api/stream    the messages of the feed, as server-sent events
//   /api/steps     ?from=STEP&to=STEP: steps in detail
//   /api/log       ?worker=NAME: the end of its log; &until=TIME: the lines up to its failure
//
// On a cluster, &job=NAMESPACE/NAME selects the job of each of them.
//
// page_guard.h decides who may read them. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "base/http/server.h"
#include "base/result.h"
#include "cli/ui/page_feed.h"
#include "cli/ui/page_guard.h"

namespace ringmaster::cli {

class PageServer {
 public:
  // Errors: kUnavailable when it cannot listen on the address. REQUIRES: `feed` outlives the server.
  static Result<std::unique_ptr<PageServer>> Start(const PageAddress& address, PageFeed& feed);

  // Finishes the feed.
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  // Where to open the page, with the token if it needs one.
  const std::string& url() const { return url_; }

 private:
  PageServer(PageFeed& feed, std::unique_ptr<http::Server> server, std::string url)
      : feed_(feed), server_(std::move(server)), url_(std::move(url)) {}

  PageFeed& feed_;
  const std::unique_ptr<http::Server> server_;
  const std::string url_;
};

}  // namespace ringmaster::cli
