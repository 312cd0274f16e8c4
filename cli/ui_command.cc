// SPDX-License-Identifier: Apache-2.0

// `ringmaster ui`: serves the live page of a run's folder until it is interrupted.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/run/signals.h"
#include "cli/ui/folder_feed.h"
#include "cli/ui/page_server.h"

namespace ringmaster::cli {
namespace {

struct UiFlags {
  std::string folder;
  std::string listen;
};

Result<int> ServePage(const UiFlags& flags) {
  Signals signals;  // before the threads, which inherit its mask
  RM_ASSIGN(const PageAddress address, ParsePageAddress(flags.listen));
  RM_ASSIGN(const std::unique_ptr<PageFeed> feed, FolderFeed::Open(flags.folder));
  RM_ASSIGN(const auto server, PageServer::Start(address, *feed));
  std::printf("page: %s (Ctrl-C ends it)\n", server->url().c_str());
  std::fflush(stdout);
  pollfd wait{signals.fd(), POLLIN, 0};
  while (!signals.Next()) ::poll(&wait, 1, -1);
  return static_cast<int>(kSucceeded);
}

}  // namespace

void AddUi(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<UiFlags>();
  CLI::App* command = app.add_subcommand("ui", "Serve a live page about a run");
  command->add_option("DIR", flags->folder, "Output folder of `ringmaster run`, finished or running")
      ->required();
  command->add_option("--listen", flags->listen,
                      "[IP:]PORT of the page (default: a free port of 127.0.0.1); another address than "
                      "loopback needs the token that is printed");
  command->footer("Example:\n  ringmaster ui ringmaster-out/gpt-text --listen 8080");
  command->callback([flags, &exit_code] {
    const Result<int> served = ServePage(*flags);
    exit_code = served.ok() ? *served : Refuse(served.error());
  });
}

}  // namespace ringmaster::cli
